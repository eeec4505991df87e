"""Machines that this one is not: NUMA, cgroup v2 and systemd, booted in qemu by software emulation.

`machines` is the one table of what can be booted, `images` makes the disks (a root made once by debootstrap and kept
in a cache, and two small ones with the wheels and the project), `vm` boots a machine and talks to it, `guest` is the
program that answers inside. Called by tests/vm (`make test-vm`), and by hand: `python -m tools.vm two-sockets lscpu`.
Nothing here imports kubeqos, and nothing of it needs a network once the root is made.
"""
