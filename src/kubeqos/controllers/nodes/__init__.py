"""Node lifecycle: silent nodes, their taints, and pods that nobody will end."""
