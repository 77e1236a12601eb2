"""The trusted runner: `python -m cudaops.sandbox.gpu.runner DRIVER` serves tasks as JSON lines."""
