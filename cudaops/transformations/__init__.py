"""Transformations: each gives another kernel and launch that compute the same, from a `Draft`."""
