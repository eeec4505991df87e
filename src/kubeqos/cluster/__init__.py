"""What `kubeqos up` runs: a whole cluster in one process, the file that describes it, its plugin processes.

Called by the command line, tests and benchmarks.
"""
