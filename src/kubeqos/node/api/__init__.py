"""The agent's side of the API server: the Node and its lease, pods and their statuses, static pods, events.

Called by the agent. It reads and writes objects by `client` and retries; what a status says is decided elsewhere.
"""
