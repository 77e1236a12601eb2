"""Tool `strip_program` of the server `sandbox`: from a whole program to a rewrite."""

from __future__ import annotations

from typing import Annotated

from fastmcp import FastMCP
from pydantic import Field

from cudaops.domain.base import Record
from cudaops.mcp_servers.annotations import works
from cudaops.mcp_servers.session import Seat
from cudaops.mcp_servers.work import in_thread
from cudaops.sandbox.stripping import program_of, strip

ProgramText = Annotated[
    str,
    Field(
        description="A whole CUDA program in one file: kernels, `main`, launches.",
        max_length=400_000,
    ),
]


class StrippedProgram(Record):
    """A program's device code as a rewrite of the open program's kernel."""

    source: str
    """Device source with a `@launch` as the program launched it, for the sizes that it ran with."""
    notices: tuple[str, ...]
    """What was left behind and might have mattered, a line each."""


def add_stripping(server: FastMCP, seat: Seat) -> None:
    """Register the tool."""

    @server.tool(annotations=works("Strip a program of its host code"))
    @in_thread
    def strip_program(text: ProgramText) -> StrippedProgram:
        """Run a whole program once, confined, to see how it launches its kernel, and drop its host
        code. Its times and outputs are not used. A refusal is one line."""
        bench = seat.current().bench
        stripped = strip(bench, program_of(text), strangers=True)
        return StrippedProgram(source=stripped.rewrite.source, notices=stripped.notices)
