"""Texts with a grammar of their own: what Go's decoder says of bad JSON, how Go quotes, schedules as cron writes them.

Pure. Asked by rules, controllers and the API server wherever clients of Kubernetes know the exact words.
"""
