"""`cudaops mcp`: the MCP servers for another host, on stdio or over HTTP."""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from cudaops.cli_mcp_install import install
from cudaops.cli_options import (
    ArchOption,
    DeviceOption,
    ExecutorOption,
    SpeedupOption,
    TimeoutOption,
    TrustOption,
)
from cudaops.domain.judgement import Policy
from cudaops.errors import InputError
from cudaops.graph.placing import place
from cudaops.settings import load_settings

if TYPE_CHECKING:
    from cudaops.mcp_servers.sessions import Session

LEAVE_WITHIN_S = 5.0
"""A folder that cannot be removed keeps no process alive for longer."""

ServerName = Literal["profiler", "knowledge", "sandbox", "all"]
TransportOption = Annotated[
    Literal["stdio", "http"],
    typer.Option(help="stdio for a host that starts it; http for hosts that connect."),
]
HostOption = Annotated[str, typer.Option(help="http: address to listen on.")]
PortOption = Annotated[int, typer.Option(min=1, max=65535, help="http: port to listen on.")]
AllowedOption = Annotated[
    list[str] | None,
    typer.Option(help="http: a name by which callers reach it; may be repeated."),
]
PathsOption = Annotated[
    bool, typer.Option("--allow-paths", help="http: callers may name files of this machine.")
]
ServerArgument = Annotated[ServerName, typer.Argument(help="Which tools to offer.")]


class _ServeByDefault(TyperGroup):
    """`cudaops mcp all` is `cudaops mcp serve all`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `serve` in front where no command was named."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ServeByDefault,
    help="MCP servers for other agent hosts; `serve` may be left out.",
    no_args_is_help=False,
)
app.command("install")(install)


@app.command("skill")
def skill() -> None:
    """Print the skill document, for hosts that read one: ~/.claude/skills/cudaops/SKILL.md."""
    from cudaops.mcp_servers.prompts import skill_text

    typer.echo(skill_text().rstrip("\n"))


@app.command("serve")
def serve(
    server: ServerArgument = "all",
    transport: TransportOption = "stdio",
    host: HostOption = "127.0.0.1",
    port: PortOption = 8765,
    path: Annotated[str, typer.Option(help="http: path of the endpoint.")] = "/mcp",
    allowed_host: AllowedOption = None,
    allow_paths: PathsOption = False,
    executor: ExecutorOption = None,
    arch: ArchOption = None,
    device: DeviceOption = None,
    min_speedup: SpeedupOption = 1.2,
    timeout: TimeoutOption = 120.0,
    trust_source: TrustOption = False,
) -> None:
    """Offer cudaops' tools to another agent over MCP. Over HTTP callers send CUDAOPS_TOKEN as a
    bearer token; without one only this machine can call."""
    settings = load_settings()
    token = settings.token.get_secret_value() if settings.token else None
    if transport == "http":
        from cudaops.mcp_servers.http import require_token

        require_token(host, token)
    from cudaops.graph.hosted import Hosting
    from cudaops.graph.services import open_knowledge
    from cudaops.mcp_servers.servers import build_server

    where = place(executor or settings.executor, device, arch)
    if where.executor == "remote":
        raise InputError(
            "MCP's tools work on this machine; start `cudaops mcp` on the service's, or choose "
            "--executor cpu or cuda"
        )
    hosting = Hosting(
        settings=settings,
        where=where,
        policy=Policy(min_speedup=min_speedup),
        timeout_s=timeout,
        trust_source=trust_source,
        strangers=transport == "http" and not allow_paths,
    )
    build = functools.partial(
        build_server,
        server,
        open_knowledge=functools.partial(open_knowledge, settings),
        write_run=hosting.write_run,
        optimize=hosting.optimize,
    )
    if transport == "stdio":
        session = hosting.session()
        _on_stdio(build(sessions=session).run, session)
        return
    from cudaops.mcp_servers.http import one_token, serve_http
    from cudaops.mcp_servers.sessions import SessionPool

    serve_http(
        build(sessions=SessionPool(hosting.strangers_session)),
        host=host,
        port=port,
        path=path,
        verify=None if token is None else one_token(token),
        allowed_hosts=tuple(allowed_host or ()),
    )


def _on_stdio(run: Callable[..., None], session: Session) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, functools.partial(_end, session))
    try:
        run(transport="stdio", show_banner=False)
    finally:
        session.close()
        if sys.stdout.closed:  # by the transport; whoever called us flushes it
            sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def _end(session: Session, number: int, _frame: FrameType | None) -> None:
    """Hosts end a server by a signal, some half a second before they kill it. Its thread that reads
    stdin cannot be woken, so another one tidies up and ends the process."""

    def leave() -> None:
        threading.Timer(LEAVE_WITHIN_S, os._exit, (128 + number,)).start()
        try:
            session.close()
            atexit._run_exitfuncs()
        finally:
            os._exit(128 + number)

    threading.Thread(target=leave, daemon=True).start()
