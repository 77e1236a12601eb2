"""`cudaops mcp`: the MCP servers for another host, on stdio."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
