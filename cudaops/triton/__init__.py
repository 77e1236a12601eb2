"""Triton kernels as a back end: [docs/triton.md](../../docs/triton.md)."""
