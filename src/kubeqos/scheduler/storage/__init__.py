"""The volume claims of pods: `views` of claims, volumes and classes, and the `index` of what they need. Pure.

Called by the core, fed by `scheduler.feed`. What a node makes of a need is `placement.storage`'s.
"""
