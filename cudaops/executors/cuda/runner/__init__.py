"""The trusted runner: `python -m cudaops.executors.cuda.runner DRIVER`, tasks as JSON lines."""
