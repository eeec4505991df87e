"""The `kubeqos` command and the `kubectl qos` plugin.

Subcommands are imported when they are called, so that the first output appears within 200 ms.
"""
