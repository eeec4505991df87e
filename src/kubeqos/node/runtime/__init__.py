"""The agent's hands: effects become CRI calls, and what the runtime does becomes stimuli.

Called by the agent. Deadlines, retries and the words of a runtime live here; nothing is decided here.
"""
