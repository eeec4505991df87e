"""How bytes reach an API server: addresses and proxies, connections that are dialled, kept and shared, HTTP/1.1 on
them.

Used by `client.http`, and `address` by `client.light` as well; what is asked and what an answer means is not known
here.
"""
