"""The trusted runner: `python -m cudaops.sandbox.gpu.runner nvidia|standin` serves tasks as JSON."""
