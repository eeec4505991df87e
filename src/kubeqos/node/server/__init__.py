"""What a node answers to others: logs, exec, statistics, metrics, the Pod Resources API.

Called by the API server's proxy, by monitoring and by device-aware software on the node. It reads what the agent knows
and never changes it.
"""
