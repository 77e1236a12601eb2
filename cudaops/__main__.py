"""`python -m cudaops`, and the `cudaops` command."""

from __future__ import annotations

import sys

from cudaops.cli.boundary import run_command


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
