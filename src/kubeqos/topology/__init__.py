"""Decisions on one machine: topology hints and their merge, CPU and memory allocators, pools.

Called by the node agent's managers, by QRM plugins and by CCI drivers. Works on `Machine`, `CpuSet` and
`NumaSet` values and never touches the machine it runs on.

The doors, by question:
  where may it go?         `alignment.cpuhints.cpu_hints`, `memory.MemoryState.hints`, `alignment.merge.merge`
  which CPUs?              `cpus.allocate_cpus` (Kubernetes' options), `compute.allocate` (KEP-3675's attributes)
  which memory?            `memory.MemoryState.allocate` and `.release`
  who has what?            `pools.Pools`, drawn by `map.render_map`
  in which order to write? `changes.plan_changes`
  how scattered is the rest? `fragmentation.fragmentation`
  who should move then?    `defragment.defragment`

Behind them, on int masks: `packed`, `distributed`, `wholecores`, `alignment.masks`, `.andsets`, `.numeric`.
"""
