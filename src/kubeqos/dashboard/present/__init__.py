"""The cluster as the dashboard shows it: from objects to the documented answers, and the types of these answers.

Pure. Called by `dashboard.answers`, which knows who asks; nothing here reads the API or judges what may be seen.
"""
