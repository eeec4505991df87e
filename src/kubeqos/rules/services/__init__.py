"""Services: what an update keeps and drops with their type, and the addresses and ports that the API gives them.

Pure. `updates` is called by admission before an update is judged; `addresses` by the server's chain, which alone knows
what is taken, after everything else has been decided.
"""
