"""Tool `screen_rewrite` of the sandbox server: a first look that judges nothing."""

from __future__ import annotations

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext

from cudaops.mcp_servers.annotations import works
from cudaops.mcp_servers.progress import progress
from cudaops.mcp_servers.rewrites import SourceText, TunedValues, read_rewrite
from cudaops.mcp_servers.session import Seat
from cudaops.mcp_servers.work import in_thread
from cudaops.sandbox.screen import Screened, screen


def add_screening(server: FastMCP, seat: Seat) -> None:
    """Register the tool on the sandbox server."""

    @server.tool(annotations=works("Screen a rewrite"))
    @in_thread
    def screen_rewrite(
        source: SourceText,
        tuned: TunedValues = {},  # noqa: B006
        proposer: str = "mcp:client",
        title: str = "rewrite",
        context: Context = CurrentContext(),  # noqa: B008
    ) -> Screened:
        """Compile a rewrite, check it on the captured inputs and take one time. Not a judgement."""
        bench = seat.current().bench
        rewrite = read_rewrite(source, tuned=tuned, proposer=proposer, title=title)
        return screen(bench, rewrite, progress(context))
