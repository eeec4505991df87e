"""The agent's side of the API server: the Node and its lease, pods and their statuses, static pods, events."""
