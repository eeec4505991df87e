"""Between pods and CRI messages, both ways: what the runtime is told of a pod, and what it shows of one. Pure.

Called by everybody on the node who speaks to the runtime. Nothing here calls it.
"""
