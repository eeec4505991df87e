"""Validation of kinds that this house stores for others: tables of what Kubernetes says about their fields.

`rules` lists the kinds and what may not change, `walk` follows an object along its schema, `checks` are the words of
which the other modules write their tables, one for each family. Called through `validation.KINDS`.
"""
