"""Commands that look into a cluster: why, story, describe, top, map, podresources, classes, quota, dashboard.

Called by `cli.main`, each imported when it is named. They read and print the reasons that the engines gave; they decide
nothing and change nothing.
"""
