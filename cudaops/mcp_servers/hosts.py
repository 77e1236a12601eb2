"""Registration of an MCP server with agent hosts: file, key, and an edit that keeps the rest.

Formats from each host's documentation, named in docs/mcp.md with the date it was read.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from cudaops.errors import InputError

ClientName = Literal[
    "claude-code", "claude-desktop", "cursor", "vscode", "windsurf", "zed", "gemini", "codex"
]
Scope = Literal["user", "project"]
System = Literal["linux", "darwin", "windows"]

ENTRY = "cudaops"
"""What the server is called in a host's file."""
LONGEST_CALL_S = 7200
"""How long a host is to wait for one call: as long as a job of the service may take."""
START_S = 60
"""How long for the server to come up: it reads some 2,000 modules first, which takes seconds."""


class Home(NamedTuple):
    """Where this user's files are."""

    home: Path
    config: Path
    """`$XDG_CONFIG_HOME`, `~/Library/Application Support` or `%APPDATA%`."""
    project: Path
    system: System


class Client(NamedTuple):
    """One host."""

    title: str
    key: str
    """Of the table of servers in its file."""
    user: Callable[[Home], Path | None]
    project: str | None
    """Path below the project's folder; None: it reads no such file."""
    typed: bool = False
    """The entry says `"type": "stdio"`."""
    toml: bool = False
    patience: Mapping[str, int] = MappingProxyType({})
    """Settings of the entry, where this host would else give up before a run has ended."""


def _below_home(path: str) -> Callable[[Home], Path | None]:
    return lambda home: home.home / PurePosixPath(path)


def _below_config(path: str) -> Callable[[Home], Path | None]:
    return lambda home: home.config / PurePosixPath(path)


def _zed(home: Home) -> Path:
    """Zed keeps to ~/.config on macOS too."""
    base = home.home / ".config" / "zed" if home.system == "darwin" else home.config / "zed"
    return (home.config / "Zed" if home.system == "windows" else base) / "settings.json"


CLIENTS: Mapping[ClientName, Client] = {
    "claude-code": Client(
        "Claude Code", "mcpServers", _below_home(".claude.json"), ".mcp.json", typed=True
    ),
    "claude-desktop": Client(
        "Claude Desktop", "mcpServers", _below_config("Claude/claude_desktop_config.json"), None
    ),
    "cursor": Client("Cursor", "mcpServers", _below_home(".cursor/mcp.json"), ".cursor/mcp.json"),
    "vscode": Client(
        "VS Code", "servers", _below_config("Code/User/mcp.json"), ".vscode/mcp.json", typed=True
    ),
    "windsurf": Client(
        "Windsurf", "mcpServers", _below_home(".codeium/windsurf/mcp_config.json"), None
    ),
    "zed": Client("Zed", "context_servers", _zed, ".zed/settings.json"),
    "gemini": Client(
        "Gemini CLI",
        "mcpServers",
        _below_home(".gemini/settings.json"),
        ".gemini/settings.json",
        patience={"timeout": LONGEST_CALL_S * 1000},
    ),
    "codex": Client(
        "Codex",
        "mcp_servers",
        _below_home(".codex/config.toml"),
        ".codex/config.toml",
        toml=True,
        patience={"startup_timeout_sec": START_S, "tool_timeout_sec": LONGEST_CALL_S},
    ),
}


class ConfigChange(NamedTuple):
    """A host's file before and after."""

    path: Path
    before: str | None
    """None: there is no such file yet."""
    after: str

    @property
    def changes(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after


def config_path(client: ClientName, scope: Scope, home: Home) -> Path:
    """The host's file. Raises InputError where it has none for the scope."""
    row = CLIENTS[client]
    if scope == "project":
        if row.project is None:
            raise InputError(f"{row.title} has no project configuration; use --scope user")
        return home.project / PurePosixPath(row.project)
    found = row.user(home)
    assert found is not None
    return found


def snippet(client: ClientName, command: Sequence[str], env: Mapping[str, str]) -> str:
    """What to add by hand: the smallest file that has the entry."""
    row = CLIENTS[client]
    if row.toml:
        return _toml_entry(row, command, env)
    return _dumped({row.key: {ENTRY: _entry(row, command, env)}}, 2)


def add_entry(
    client: ClientName, path: Path, command: Sequence[str], env: Mapping[str, str]
) -> ConfigChange:
    """The change that adds or renews the entry and keeps everything else.

    Raises InputError where the file cannot be merged into without a loss; it shows what to paste.
    """
    row, before = CLIENTS[client], _read(path)
    if row.toml:
        after = _toml_with(path, before, _toml_entry(row, command, env))
        return ConfigChange(path, before, after)
    document = _parsed(path, before, snippet(client, command, env))
    servers = document.setdefault(row.key, {})
    if not isinstance(servers, dict):
        raise InputError(f"{path}: `{row.key}` is not an object there; fix it first")
    wanted = _entry(row, command, env)
    if servers.get(ENTRY) == wanted:
        return ConfigChange(path, before, before or "")
    servers[ENTRY] = wanted
    return ConfigChange(path, before, _dumped(document, _indent(before)))


def remove_entry(client: ClientName, path: Path) -> ConfigChange:
    """The change that takes the entry out again; none where it is not there."""
    row, before = CLIENTS[client], _read(path)
    if before is None:
        return ConfigChange(path, None, "")._replace(before="")
    if row.toml:
        return ConfigChange(path, before, _toml_with(path, before, ""))
    document = _parsed(path, before, f"take `{ENTRY}` out of `{row.key}`")
    servers = document.get(row.key)
    if not isinstance(servers, dict) or ENTRY not in servers:
        return ConfigChange(path, before, before)
    del servers[ENTRY]
    return ConfigChange(path, before, _dumped(document, _indent(before)))


def _entry(row: Client, command: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "stdio"} if row.typed else {}
    entry |= {"command": command[0], "args": list(command[1:]), **row.patience}
    return entry | ({"env": dict(env)} if env else {})


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _parsed(path: Path, text: str | None, by_hand: str) -> dict[str, Any]:
    if text is None or not text.strip():
        return {}
    try:
        document = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise InputError(
            f"{path} has comments, trailing commas or a key twice ({error}), which rewriting "
            f"would lose; it is unchanged. Edit it by hand:\n{by_hand}"
        ) from None
    if not isinstance(document, dict):
        raise InputError(f"{path} holds no JSON object; it is unchanged. By hand:\n{by_hand}")
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without duplicate keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate key")
    return found


def _dumped(document: dict[str, Any], indent: int | str) -> str:
    return json.dumps(document, indent=indent, ensure_ascii=False) + "\n"


def _indent(text: str | None) -> int | str:
    """As the file has it: that of its first indented line."""
    found = re.search(r"^([ \t]+)\S", text or "", flags=re.MULTILINE)
    return found[1] if found else 2


def _toml_entry(row: Client, command: Sequence[str], env: Mapping[str, str]) -> str:
    # Strings, numbers and lists of JSON are TOML's too: both escape alike.
    entry = _entry(row, command, {})
    lines = [f"[mcp_servers.{ENTRY}]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
    if env:
        lines += ["", f"[mcp_servers.{ENTRY}.env]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in env.items()]
    return "\n".join(lines) + "\n"


def _toml_with(path: Path, before: str | None, entry: str) -> str:
    """The text with our tables replaced by `entry`; the rest stays as it is, to the letter."""
    text = before or ""
    old = _toml(path, text)
    kept = re.sub(
        rf"^\[mcp_servers\.{ENTRY}(?:\.[^\]\n]+)?\][^\n]*\n(?:(?!\[)[^\n]*\n?)*",
        "",
        text,
        flags=re.MULTILINE,
    )
    if entry and kept.strip():
        kept = kept.rstrip("\n") + "\n\n"
    after = kept + entry
    if _others(old) != _others(_toml(path, after)):
        raise InputError(
            f"{path} has `mcp_servers.{ENTRY}` in a form that cannot be replaced safely; it is "
            f"unchanged. Edit it by hand:\n{entry}"
        )
    return text if _toml(path, after) == old and before is not None else after


def _toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}; fix it first") from error


def _others(document: dict[str, Any]) -> dict[str, Any]:
    """All but our entry."""
    servers = document.get("mcp_servers", {})
    rest = {name: value for name, value in servers.items() if name != ENTRY}
    return {**{k: v for k, v in document.items() if k != "mcp_servers"}, "mcp_servers": rest}
