"""The compute drivers that come with kubeqos; each runs as a process of its own (`kubeqos driver NAME`)."""
