"""Workloads that stay: replicas, deployments and their rollouts, daemon and stateful sets, disruption budgets.

Run by `manager.ControllerManager`. `replicas`, `deployments`, `rollout`, `daemonsets`, `statefulsets`, `revisions` and
`disruption` are pure; the `…controller` modules watch and perform. None of them keeps what a new list would not show.
"""
