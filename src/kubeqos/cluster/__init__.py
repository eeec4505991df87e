"""Stock Kubernetes: the engines as admission webhooks, scheduler extender and NRI plugin."""
