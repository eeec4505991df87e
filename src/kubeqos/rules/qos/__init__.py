"""QoS of pods: their class, what it means for cgroups, the OOM killer and eviction, and QoS-class resources (KEP-3008).

Pure. Asked by the API server's admission, the scheduler, nodes and `kubeqos classify`; each rule is stated once here.
"""
