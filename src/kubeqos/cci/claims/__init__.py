"""Claims (KEP-3675): from what a pod names to drivers and parameters, and what each container asks of them.

Called by the manager on the node and by admission in the API server, so that both refuse the same claims. `resolving`
reads objects from the API; the rest are values. No driver is called here.
"""
