"""What a node answers to others: logs, exec, statistics, metrics, the Pod Resources API."""
