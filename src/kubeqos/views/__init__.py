"""What people are shown of a cluster, as values: why a pod is where it is, who owns which CPU, how full classes are.

Called by the command line, which prints it, and by the dashboard, which draws it: both say the same because it is
worked out once, here. API objects in, plain data out: no view reads from a server, and none decides anything.
"""
