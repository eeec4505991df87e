"""What `kubeqos up` runs: a whole cluster in one process, the file that describes it, its nodes and their plugin
processes, where a running one is found; and fleets of nodes without an API server.

Called by the command line, tests and benchmarks, none of which it imports: plugins are started as programs.
"""
