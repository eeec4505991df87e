"""What the API adds to an object before it is judged: defaults, what a RuntimeClass says, selectors of own labels.

Pure. Called by admission, and by nodes for pods that no server has seen. It knows no rule about what is valid.
"""
