"""Work that ends: Jobs with their pods, and CronJobs that make Jobs at their times.

Run by `manager.ControllerManager`. `jobs`, `jobpods` and `cronjobs` are pure; the `…controller` modules watch and
perform. Pods are made, adopted and told of as those of a ReplicaSet (`workloads.replicacontroller`).
"""
