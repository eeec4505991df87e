"""Commands that change a cluster where kubectl's compiled types cannot: edit, rollout.

Called by `cli.main`, each imported when it is named. They send objects as they were read, with every field; the server
decides.
"""
