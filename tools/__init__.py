"""Tools for those who change kubeqos; none of them is needed to run it."""
