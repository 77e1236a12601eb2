"""The time model: what sampled blocks did, as work, and that work's time on a device.

Counts come in as a trace of memory accesses and as GCC's IL with execution counts; `launch.py` is
the way in. Nothing here starts a process or reads a file that untrusted code wrote.
"""
