"""The CPU plugin: pools by role, CPUs of one's own, NUMA and SMT rules; pools change size under running containers.

Started as `kubeqos plugin cpu`. `state` decides on values, `plugin` answers the manager's calls with it, `advisor`
proposes sizes from `usage`; no CPU is ever in two pools.
"""
