"""Objects that the server keeps by itself: what an empty cluster starts with, its own Service, and what expires.

Started by `apiserver.server` alone; it writes through the registry like any client, and answers no request.
"""
