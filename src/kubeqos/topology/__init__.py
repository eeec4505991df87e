"""Decisions on one machine: topology hints and their merge, CPU and memory allocators, pools.

Called by the node agent's managers, by QRM plugins and by CCI drivers. Works on `model.Machine`, `CpuSet` and
`NumaSet` values and never touches the machine it runs on.
"""
