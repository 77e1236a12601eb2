"""Reads the small part of CUDA C++ that kernels' bodies are written in, and says what they compute.

`tokens` splits text and expands macros, `syntax` names what `parser` finds, `symbolic` runs a body
once with unknowns in place of numbers. Each refuses (`NotUnderstood`) what it does not know.
"""
