"""Nouns: quantities, names, selectors, CPU sets, machines, and read-only views of API objects.

Every other room imports this one and it imports none of them. Values here are immutable, compare by value
and know nothing about files, clocks or sockets.
"""
