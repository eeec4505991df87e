"""HTTP, authentication, the admission chain, patches, tables, discovery, OpenAPI.

The shell around `rules` and `store`: it decodes a request, asks the rules, commits, and serves stored bytes.
"""
