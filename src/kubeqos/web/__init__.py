"""What every HTTPS server of ours needs: ASGI, sockets, TLS, certificates, health, the words of a refusal.

Called by the API server, the node agents' endpoint and whatever shows its health. It knows no kind and decides nothing
about objects.
"""
