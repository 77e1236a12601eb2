"""`cudaops mcp`: the MCP servers for another host, and telling an agent host of them."""

from __future__ import annotations

import atexit
import difflib
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from cudaops.cli.options import with_options
from cudaops.domain.judgement import Policy
from cudaops.domain.options import BarOptions, PlaceOptions, TimeoutOptions, TrustOptions
from cudaops.errors import InputError
from cudaops.graph.resolve_options import place
from cudaops.settings import load_settings

if TYPE_CHECKING:
    from cudaops.mcp_servers.hosts import ConfigChange, Home
    from cudaops.mcp_servers.sessions import Session

ClientOption = Annotated[
    Literal[
        "claude-code", "claude-desktop", "cursor", "vscode", "windsurf", "zed", "gemini", "codex"
    ],
    typer.Option("--client", help="Host to configure."),
]


def install(
    client: ClientOption,
    server: Annotated[
        Literal["profiler", "knowledge", "sandbox", "all"],
        typer.Argument(help="Tools to serve."),
    ] = "all",
    scope: Annotated[
        Literal["user", "project"], typer.Option(help="For all projects, or for this folder only.")
    ] = "user",
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the server; may be repeated.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the entry.")] = False,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the entry only; read no file.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking.")] = False,
) -> None:
    """Add cudaops to an agent host's MCP servers: shows file and change, then asks.

    The old file is kept beside the new one as .bak-TIME.
    """
    from cudaops.mcp_servers.hosts import (
        CLIENTS,
        add_entry,
        config_path,
        remove_entry,
        snippet,
    )

    command = (sys.executable, "-m", "cudaops", "mcp", "serve", server)
    variables = _variables(env or [])
    path = config_path(client, scope, _home())
    if only_print:
        typer.echo(f"# {path}", err=True)
        typer.echo(snippet(client, command, variables).rstrip("\n"))
        return
    change = remove_entry(client, path) if remove else add_entry(client, path, command, variables)
    title = CLIENTS[client].title
    if not change.changes:
        typer.echo(f"{title}: {path} needs no change")
        return
    typer.echo(_difference(change))
    if not yes and not _confirmed(path):
        typer.echo("nothing was written")
        raise typer.Exit(1)
    kept = _write(change)
    beside = f"; the old one is {kept}" if kept else ""
    typer.echo(f"{title}: wrote {path}{beside}; restart the host to see it")


def _confirmed(path: Path) -> bool:
    if not sys.stdin.isatty():
        typer.echo("no terminal for the question; --yes writes this", err=True)
        return False
    return typer.confirm(f"Write {path}?")


def _variables(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.isidentifier():
            raise InputError(f"--env {name}: write NAME=VALUE, like --env CUDAOPS_EXECUTOR=cpu")
        found[name] = value
    return found


def _difference(change: ConfigChange) -> str:
    before = (change.before or "").splitlines()
    lines = difflib.unified_diff(
        before,
        change.after.splitlines(),
        str(change.path) if change.before is not None else "(no such file yet)",
        str(change.path),
        lineterm="",
    )
    return "\n".join(lines)


def _write(change: ConfigChange) -> Path | None:
    """Write the new text whole; the old one is kept, and its path returned."""
    path = change.path.resolve()  # a link stays one
    kept = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if change.before is not None and path.exists():
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            kept = path.with_name(f"{path.name}.bak-{stamp}")
            kept.write_bytes(path.read_bytes())
            kept.chmod(path.stat().st_mode & 0o777)
        temporary = path.with_name(path.name + ".cudaops-part")
        temporary.write_text(change.after, encoding="utf-8", newline="")
        temporary.chmod((path.stat().st_mode if path.exists() else 0o600) & 0o777)
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    return kept


def _home() -> Home:
    from cudaops.mcp_servers.hosts import Home

    home = Path.home()
    if sys.platform == "win32":
        config = Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
        return Home(home, config, Path.cwd(), "windows")
    if sys.platform == "darwin":
        return Home(home, home / "Library" / "Application Support", Path.cwd(), "darwin")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return Home(home, config, Path.cwd(), "linux")


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
    bool, typer.Option("--allow-paths", help="http: callers may open files of this machine.")
]
AddingOption = Annotated[
    bool,
    typer.Option(
        "--allow-adding",
        help="Callers may add sources to the knowledge base; over http packages, paths too with "
        "--allow-paths.",
    ),
]
ServerArgument = Annotated[ServerName, typer.Argument(help="Tools to serve.")]


class _ServeByDefault(TyperGroup):
    """`cudaops mcp all` is `cudaops mcp serve all`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `serve` in front where no command was named."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ServeByDefault,
    help="MCP servers for agent hosts; `serve` may be omitted.",
    no_args_is_help=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.command("install")(install)


@app.command("skill")
def skill() -> None:
    """Print the skill document, for hosts that read one: ~/.claude/skills/cudaops/SKILL.md."""
    from cudaops.mcp_servers.prompts import skill_text

    typer.echo(skill_text().rstrip("\n"))


class ServeOptions(PlaceOptions, BarOptions, TimeoutOptions, TrustOptions):
    """Of the runs that a server is asked for."""


@app.command("serve")
@with_options
def serve(
    server: ServerArgument = "all",
    *,
    transport: TransportOption = "stdio",
    host: HostOption = "127.0.0.1",
    port: PortOption = 8765,
    path: Annotated[str, typer.Option(help="http: path of the endpoint.")] = "/mcp",
    allowed_host: AllowedOption = None,
    allow_paths: PathsOption = False,
    allow_adding: AddingOption = False,
    options: ServeOptions,
) -> None:
    """Serve the tools to an agent host over MCP; `serve` may be omitted.

    Over HTTP callers send CUDAOPS_TOKEN as a bearer token; without one only this machine can call.
    """
    settings = load_settings()
    token = settings.token.get_secret_value() if settings.token else None
    if transport == "http":
        from cudaops.mcp_servers.http import require_token

        require_token(host, token)
    from cudaops.graph.hosted import Hosting
    from cudaops.graph.toolbox import open_knowledge
    from cudaops.mcp_servers.servers import build_server

    where = place(options.executor or settings.executor, options.device, options.arch)
    if where.executor == "remote":
        raise InputError(
            "MCP's tools work on this machine; start `cudaops mcp` on the service's, or choose "
            "--executor cpu or cuda"
        )
    hosting = Hosting(
        settings=settings,
        where=where,
        policy=Policy(min_speedup=options.min_speedup),
        timeout_s=options.timeout_seconds,
        trust_source=options.trust_source,
        strangers=transport == "http" and not allow_paths,
    )
    build = functools.partial(
        build_server,
        server,
        open_knowledge=functools.partial(open_knowledge, settings),
        write_run=hosting.write_run,
        optimize=hosting.optimize,
        adding="no" if not allow_adding else "packages" if hosting.strangers else "all",
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
