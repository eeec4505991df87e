"""Container Compute Interface (KEP-3675): manager, store, driver SDK and built-in drivers."""
