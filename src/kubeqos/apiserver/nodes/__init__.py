"""The API server's side of nodes: which pods are where, and requests that a node's own endpoint answers.

Called by `app`, by the rule about what a node may see (`auth`) and by watches of one node's pods. It follows the store
and passes calls on; it never writes an object.
"""
