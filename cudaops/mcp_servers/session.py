"""What the profiler and sandbox servers share: the program that is open, and how to open one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from fastmcp.exceptions import ToolError

from cudaops.mcp_servers.failures import tool_errors
from cudaops.sandbox.workbench import Workbench

OpenProgram = Callable[[Path, str | None, tuple[str, ...]], Workbench]
"""Path of a `.cu`, name of the kernel or None, arguments for the program."""


class Session:
    """One open program. The servers of one process share it, so that what one profiles is what the
    other judges."""

    def __init__(
        self, open_program: OpenProgram | None = None, bench: Workbench | None = None
    ) -> None:
        self._open_program = open_program
        self._bench = bench
        self._lock = threading.Lock()

    @property
    def bench(self) -> Workbench:
        """The open workbench. Raises ToolError where no program is open yet."""
        if self._bench is None:
            raise ToolError(
                "no program is open: call open_program with the path of a .cu file first"
            )
        return self._bench

    def open(self, path: Path, kernel: str | None, argv: tuple[str, ...]) -> Workbench:
        """Open a program in place of the present one.

        Raises ToolError with a line that says what to change where it cannot be opened.
        """
        if self._open_program is None:
            raise ToolError("this server was started for one program and cannot open another")
        with self._lock, tool_errors():
            self._bench = self._open_program(path, kernel, argv)
            return self._bench
