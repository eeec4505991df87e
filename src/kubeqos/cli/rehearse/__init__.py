"""Commands that say what would happen: classify, check, convert, simulate, autoscale.

Called by `cli.main`. They ask `rules`, `placement` and `simulation`, which need no cluster; where no file is given,
some read the objects of one. Nothing is written to it.
"""
