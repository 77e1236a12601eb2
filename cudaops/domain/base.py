"""The one base of every record: frozen, closed, described by the docstrings of its fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A fact that does not change once written.

    The docstring under a field is its description in JSON schema, MCP tool schemas and OpenAPI.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Dim3(Record):
    """Extent of a grid or block in blocks or threads."""

    x: int = 1
    y: int = 1
    z: int = 1

    @property
    def volume(self) -> int:
        """Number of blocks or threads: x * y * z."""
        return self.x * self.y * self.z

    def __str__(self) -> str:
        return f"({self.x},{self.y},{self.z})"


class SourceLocation(Record):
    """A place in a source file."""

    file: str
    """Path as the program names it, relative to the program's root."""
    line: int
    """1-based."""
    column: int | None = None
    """1-based, in characters; None where the tool that reported it knows no column."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")
