"""The second home: the same promises on an unmodified Kubernetes, through the doors that it has.

A stock API server does not know the fields of the proposals, so pods ask by annotation (`asking`), and class quotas and
class limits are kinds of their own in `kubeqos.io/v1alpha1`. `convert` turns manifests of one home into those of the
other. `control` is the control plane, which `kubeqos controller` runs; `agent` is the node's part, `kubeqos agent`,
and `cores` what it does about CPUs; `scheduling` is our scheduler there, alone or as an extender.
"""
