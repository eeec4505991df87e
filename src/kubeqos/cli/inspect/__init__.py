"""Commands that look into a cluster: why, describe, map, top, classes, quota, dashboard.

Called by `cli.main`, each imported when it is named. They read and print the reasons that the engines gave; they decide
nothing and change nothing.
"""
