"""The compute drivers that come with kubeqos; each runs as a process of its own (`kubeqos driver NAME`).

Started by the command line, written with `cci.sdk` alone: what they do, a vendor's driver can do. They never see the
node agent or a cgroup.
"""
