"""Faster ways to the same answers: objects stamped from stencils, requests carried in batches.

Guests of the house: only `handlers` knows this folder, and the server gives the same answers without it.
"""
