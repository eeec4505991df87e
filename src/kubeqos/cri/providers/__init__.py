"""Class providers: what stands behind a QoS-class resource on a node.

A provider advertises one or more QoS-class resources (KEP-3008) and puts pods or containers into their classes. The
built-in ones are made from `classes.yaml`; a vendor adds one as a Python entry point (group
`kubeqos.class_providers`) or out of process over gRPC (`classprovider.proto`).

`protocol` is what a vendor implements. In the built-in providers three steps are kept apart: parse (`config`,
`reading`), resolve to a plan of writes (pure), and write (`cri.enforcing.host`, `rdt.files`). The relay and the agent
of a stock node call them; nothing here knows about CRI messages.
"""
