"""The pod machine: stimuli in, effects out. Every decision about the life of one pod on this node.

Pure: no I/O, no clock, no await. The agent feeds it and `runtime` carries out what it answers.
"""
