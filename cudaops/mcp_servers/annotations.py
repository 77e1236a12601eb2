"""Hints that tell a host what a tool may do, before it asks its user."""

from __future__ import annotations

from mcp.types import ToolAnnotations


def reads(title: str) -> ToolAnnotations:
    """It changes nothing, and the same call gives the same answer."""
    return ToolAnnotations(
        title=title,
        readOnlyHint=True,
        destructiveHint=False,
        idempotentHint=True,
        openWorldHint=False,
    )


def works(title: str, *, idempotent: bool = True) -> ToolAnnotations:
    """It compiles or runs something, confined, and writes only into folders of cudaops' own."""
    return ToolAnnotations(
        title=title,
        readOnlyHint=False,
        destructiveHint=False,
        idempotentHint=idempotent,
        openWorldHint=False,
    )


def replaces(title: str) -> ToolAnnotations:
    """It takes the place of something the session held: the open program and what was judged."""
    return ToolAnnotations(
        title=title,
        readOnlyHint=False,
        destructiveHint=True,
        idempotentHint=True,
        openWorldHint=False,
    )
