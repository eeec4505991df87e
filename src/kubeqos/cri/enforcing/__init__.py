"""Carrying classes out on this machine: cgroup files, process limits and devices, the pods' cgroups, systemd's units.

What is to be done was decided by the providers, as values (`cri.providers.effects`). Called by the relay, by the node's
keeper of cgroups and by agents.
"""
