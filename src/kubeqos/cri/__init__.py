"""The container runtime side: CRI messages, client, relay with class providers, simulated runtime."""
