"""Our errors as text that a model can act on: the problem and, where there is one, the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastmcp.exceptions import ToolError

from cudaops.errors import CudaOpsError, EnvironmentFailure

REMEDY = ". Remedy: "
"""Stands between problem and remedy in the message of a tool error."""


@contextmanager
def tool_errors() -> Iterator[None]:
    """Turn cudaops' own errors into ToolError; anything else is a fault of ours and stays one."""
    try:
        yield
    except EnvironmentFailure as error:
        raise ToolError(f"{error.problem}{REMEDY}{error.remedy}") from error
    except CudaOpsError as error:
        raise ToolError(str(error)) from error
