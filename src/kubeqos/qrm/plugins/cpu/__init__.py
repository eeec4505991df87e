"""The CPU plugin: pools by role, CPUs of one's own, NUMA and SMT rules; pools change size under running containers."""
