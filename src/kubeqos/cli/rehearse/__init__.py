"""Commands that need no cluster: classify, check, simulate.

Called by `cli.main`. They ask `rules`, `placement` and `simulation` what would happen, and never open a connection.
"""
