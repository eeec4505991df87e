"""The cgroups above containers: which there are, what stands in them, and who keeps it so.

Called by the agent and by the executor of effects. `plan` is pure, `files` knows versions 1 and 2, `keeper` writes.
Cgroups of containers are the runtime's and are never touched here.
"""
