"""Commands about the cluster on this machine: up, down, status, demo.

Called by `cli.main`. What runs is `cluster`'s; here are flags, what is printed while it starts, and the stories of the
demo.
"""
