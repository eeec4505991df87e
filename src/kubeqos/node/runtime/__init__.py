"""The agent's hands: effects become CRI calls, and what the runtime does becomes stimuli. Nothing is decided here."""
