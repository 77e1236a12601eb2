"""`python -m cudaops`, and the `cudaops` command."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.path[0] == os.getcwd():  # noqa: PTH109
    # `python -m` looks for modules in the working folder first, which is often a stranger's: its
    # queue.py would be imported in place of Python's and run unconfined; so might its pathlib.py.
    _package = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120
    if os.path.dirname(_package) != os.path.realpath(sys.path[0]):  # noqa: PTH120
        del sys.path[0]

from cudaops.cli.boundary import run_command


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
