"""NUMA alignment: hints of managers and plugins, and their merge.

Called by admission on the node and by plugins that give hints. `merge` chooses among sets of masks without walking
their cross product (`andsets`); `numeric` is QRM's own policy. Nothing here knows what a hint is for.
"""
