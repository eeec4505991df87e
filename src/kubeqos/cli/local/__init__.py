"""Commands about the cluster on this machine: up, down, status, demo."""
