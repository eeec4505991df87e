"""What a node agent is told, from file and flags, checked, and made into the parts that run.

Called by the command line and by `cluster`. A contradiction is refused before anything starts, with the setting to
change; nothing here runs once the agent does.
"""
