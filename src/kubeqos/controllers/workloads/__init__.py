"""Workloads: replicas, deployments and their rollouts, disruption budgets.

Run by `manager.ControllerManager`. `replicas`, `deployments`, `rollout` and `disruption` are pure; the `…controller`
modules watch and perform. None of them keeps what a new list would not show.
"""
