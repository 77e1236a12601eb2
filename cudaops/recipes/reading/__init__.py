"""Says what a kernel computes: runs the body that clang read once, with unknowns for numbers.

What is not known is refused (`NotUnderstood`), never guessed.
"""
