"""What a node agent is told, from file and flags, checked, and made into the parts that run."""
