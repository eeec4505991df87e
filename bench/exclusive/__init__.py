"""A bad day on five nodes, watched by a stranger: is a core that was promised to one container ever another's?

`python -m bench.exclusive --minutes 10` starts an API server and scheduler, and beside them nodes as processes
(`house`): resource plugins, a compute driver, a static CPU manager, each on a simulated runtime with a socket, and
plugins and a driver once more on containerd and this machine's kernel. Pods with and without promises come and go
(`users`) while plugins, drivers and agents are killed, lose their state and lie (`trouble`, `lying`).
`tools/cpuwatch.py`, which knows nothing of kubeqos, looks at every cpuset 20 times a second, in the runtime's answers
or in /sys/fs/cgroup; the exit code is its verdict.
"""
