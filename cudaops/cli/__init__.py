"""The command line: what `cudaops` and `python -m cudaops` run. One file a group of commands."""

from cudaops.cli.commands import app

__all__ = ["app"]
