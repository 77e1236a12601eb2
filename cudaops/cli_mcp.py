"""`cudaops mcp`: the MCP servers for another host, on stdio."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Literal

import typer

from cudaops.cli_runs import TrustOption, new_folder, place, run_options
from cudaops.domain.judgement import Policy
from cudaops.settings import load_settings


def serve(
    server: Annotated[
        Literal["profiler", "knowledge", "sandbox", "all"],
        typer.Argument(help="Which tools to offer."),
    ] = "all",
    arch: Annotated[str | None, typer.Option(help="nvcc target [default: the device's].")] = None,
    device: Annotated[
        str | None, typer.Option(help="Device whose time is modelled [default: A10].")
    ] = None,
    min_speedup: Annotated[
        float, typer.Option(min=1.0, help="Baseline time over candidate time.")
    ] = 1.2,
    timeout: Annotated[
        float, typer.Option(min=1.0, help="Seconds for one run of a program or a candidate.")
    ] = 120.0,
    trust_source: TrustOption = False,
) -> None:
    """Offer cudaops' tools to another agent over MCP on stdin and stdout."""
    from cudaops.graph.services import open_knowledge, program_opener
    from cudaops.mcp_servers.session import Session
    from cudaops.mcp_servers.together import build_servers, combine

    settings = load_settings()
    folder = new_folder(None, settings.runs, Path("mcp"), None)
    options = run_options(
        Path("mcp"),
        folder,
        place(settings.executor, device, arch),
        policy=Policy(min_speedup=min_speedup),
        timeout_s=timeout,
        trust_source=trust_source,
    )
    session = Session(program_opener(options, settings))
    servers = build_servers(session, functools.partial(open_knowledge, settings))
    chosen = combine(servers.values()) if server == "all" else servers[server]
    chosen.run(transport="stdio", show_banner=False)
