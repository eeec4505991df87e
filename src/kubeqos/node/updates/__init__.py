"""What running containers should have, what they have, and the safe order between: the one place that tells them.

`plan` (which writes lead from here to there) and `pending` (what was not made yet, and who waits for whom) decide,
without I/O; `updater` asks the managers and calls the runtime. Managers declare what containers should have and know
nothing of this. Called by `node.runtime.executor` and by the agent's periods.
"""
