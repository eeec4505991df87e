"""Commands that need no cluster: classify, check, simulate."""
