"""Speaks to an API server: requests, list-and-watch caches, events.

Used by controllers, scheduler, node agents and the CLI. The same interface is served over HTTP with a
kubeconfig and in-process by the embedded API server.
"""
