"""Workloads: replicas, deployments and their rollouts, disruption budgets. Decisions are pure, loops are thin."""
