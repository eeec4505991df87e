"""Commands that change a cluster where kubectl cannot, or knows too little: edit, rollout, drain, defrag.

Called by `cli.main`, each imported when it is named. They send objects as they were read, with every field; the server
decides.
"""
