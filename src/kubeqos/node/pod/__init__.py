"""The pod machine: stimuli in, effects out. Every decision about the life of one pod on this node.

Pure: no I/O, no clock, no log, no await, and nobody else of the node, which an import contract checks. The agent feeds
it, `runtime` carries out what it answers. `machine` is the one entrance; `record` is what it keeps of each pod,
`journal` what can be told and replayed.
"""
