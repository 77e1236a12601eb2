"""`cudaops mcp install`: tell an agent host of the servers, after showing what would change."""

from __future__ import annotations

import difflib
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cudaops.errors import InputError

if TYPE_CHECKING:
    from cudaops.mcp_servers.hosts import Change, Home

ClientOption = Annotated[
    Literal[
        "claude-code", "claude-desktop", "cursor", "vscode", "windsurf", "zed", "gemini", "codex"
    ],
    typer.Option("--client", help="The host to be told."),
]


def install(
    client: ClientOption,
    server: Annotated[
        Literal["profiler", "knowledge", "sandbox", "all"],
        typer.Argument(help="Which tools to offer."),
    ] = "all",
    scope: Annotated[
        Literal["user", "project"], typer.Option(help="Everywhere, or in this folder alone.")
    ] = "user",
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the server; may be repeated.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the entry out again.")] = False,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the entry for your own hands; read no file.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking.")] = False,
) -> None:
    """Add cudaops to an agent host's MCP servers: shows file and change, then asks. A file that
    was there is kept beside the new one as .bak-TIME."""
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
        typer.echo("nobody is there to be asked; --yes writes this", err=True)
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


def _difference(change: Change) -> str:
    before = (change.before or "").splitlines()
    lines = difflib.unified_diff(
        before,
        change.after.splitlines(),
        str(change.path) if change.before is not None else "(no such file yet)",
        str(change.path),
        lineterm="",
    )
    return "\n".join(lines)


def _write(change: Change) -> Path | None:
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
