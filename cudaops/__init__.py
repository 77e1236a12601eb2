"""cudaops: profile, diagnose, rewrite and prove CUDA kernels. Importing it loads nothing heavy."""

from __future__ import annotations

__version__ = "0.1.0"
