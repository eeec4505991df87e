"""Claims (KEP-3675): from what a pod names to drivers and parameters, and what each container asks of them."""
