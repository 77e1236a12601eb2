"""`cudaops mcp install`: shows the change, loses nothing, and writes only after a yes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from cudaops.cli.boundary import EXIT_INPUT, run_command
from cudaops.errors import InputError
from cudaops.mcp_servers.hosts import (
    CLIENTS,
    LONGEST_CALL_S,
    START_S,
    ClientName,
    Home,
    add_entry,
    config_path,
    remove_entry,
    snippet,
)

COMMAND = ("/opt/python", "-m", "cudaops", "mcp", "serve", "all")
JSON_CLIENTS = [name for name, row in CLIENTS.items() if not row.toml]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home folder of this test, also for the command line."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.chdir(project)
    return Home(tmp_path, tmp_path / ".config", project, "linux")


def test_every_client_is_known() -> None:
    assert set(CLIENTS) == set(get_args(ClientName))


@pytest.mark.parametrize("client", JSON_CLIENTS)
def test_an_entry_is_added_beside_what_is_there_and_taken_out_again(
    client: ClientName, home: Home
) -> None:
    path, row = config_path(client, "user", home), CLIENTS[client]
    there = {"theme": "dåk", row.key: {"other": {"command": "x"}}, "last": [1.5, None, True]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(there, indent=4, ensure_ascii=False) + "\n", "utf-8")
    change = add_entry(client, path, COMMAND, {"CUDAOPS_EXECUTOR": "cpu"})
    after = json.loads(change.after)
    entry = after[row.key].pop("cudaops")
    assert after == there
    assert list(after) == list(there)
    assert entry["command"] == "/opt/python"
    assert entry["args"] == list(COMMAND[1:])
    assert entry["env"] == {"CUDAOPS_EXECUTOR": "cpu"}
    assert (entry.get("type") == "stdio") == row.typed
    path.write_text(change.after, "utf-8")
    assert not add_entry(client, path, COMMAND, {"CUDAOPS_EXECUTOR": "cpu"}).changes
    assert remove_entry(client, path).after == change.before


@pytest.mark.parametrize("client", JSON_CLIENTS)
def test_a_file_that_is_not_there_is_made(client: ClientName, home: Home) -> None:
    path = config_path(client, "user", home)
    change = add_entry(client, path, COMMAND, {})
    assert change.before is None
    assert change.after == snippet(client, COMMAND, {})
    assert not remove_entry(client, path).changes


@pytest.mark.parametrize(
    "text",
    [
        '{\n  // a comment\n  "a": 1\n}\n',
        '{"a": 1,}\n',
        '{"a": 1, "a": 2}\n',
        "[]\n",
        "no json\n",
    ],
)
def test_what_would_be_lost_is_left_alone_and_shown(text: str, home: Home) -> None:
    path = config_path("zed", "user", home)
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match="it is unchanged") as refused:
        add_entry("zed", path, COMMAND, {})
    assert '"context_servers"' in str(refused.value)
    assert path.read_text("utf-8") == text


TOML = """# mine
model = "x"   # the model

[mcp_servers.other]
command = "y"

[history]
persistence = "none"
"""


def test_codex_keeps_every_letter_of_its_toml(home: Home) -> None:
    path = config_path("codex", "user", home)
    path.parent.mkdir(parents=True)
    path.write_text(TOML, "utf-8")
    change = add_entry("codex", path, COMMAND, {"A": 'b"c'})
    assert change.after.startswith(TOML)
    entry = tomllib.loads(change.after)["mcp_servers"]["cudaops"]
    assert entry == {
        "command": "/opt/python",
        "args": list(COMMAND[1:]),
        "startup_timeout_sec": START_S,
        "tool_timeout_sec": LONGEST_CALL_S,
        "env": {"A": 'b"c'},
    }
    path.write_text(change.after, "utf-8")
    assert not add_entry("codex", path, COMMAND, {"A": 'b"c'}).changes
    renewed = add_entry("codex", path, ("/new", "-m", "cudaops"), {})
    assert renewed.after.startswith(TOML)
    path.write_text(renewed.after, "utf-8")
    assert tomllib.loads(remove_entry("codex", path).after) == tomllib.loads(TOML)


def test_a_toml_form_that_cannot_be_replaced_is_left_alone(home: Home) -> None:
    path = config_path("codex", "user", home)
    path.parent.mkdir(parents=True)
    path.write_text('[mcp_servers]\ncudaops = { command = "x" }\nother = { command = "y" }\n')
    with pytest.raises(InputError, match=r"left alone|not valid TOML"):
        add_entry("codex", path, COMMAND, {})


def test_the_command_writes_only_after_a_yes(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config_path("cursor", "project", home)
    path.parent.mkdir()
    path.write_text('{"mcpServers": {}}\n')
    assert run_command(["mcp", "install", "--client", "cursor", "--scope", "project"]) == 1
    said = capsys.readouterr()
    assert '+    "cudaops": {' in said.out
    assert "--yes" in said.err
    assert path.read_text() == '{"mcpServers": {}}\n'
    assert not list(path.parent.glob("*.bak-*"))

    yes = ["mcp", "install", "--client", "cursor", "--scope", "project", "--yes"]
    assert run_command(yes) == 0
    assert json.loads(path.read_text())["mcpServers"]["cudaops"]["args"][1] == "cudaops"
    (kept,) = path.parent.glob("*.bak-*")
    assert kept.read_text() == '{"mcpServers": {}}\n'
    capsys.readouterr()
    assert run_command(yes) == 0
    assert "needs no change" in capsys.readouterr().out
    assert run_command([*yes, "--remove"]) == 0
    assert json.loads(path.read_text()) == {"mcpServers": {}}


def test_print_only_prints(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["mcp", "install", "knowledge", "--client", "codex", "--print"]) == 0
    entry = tomllib.loads(capsys.readouterr().out)["mcp_servers"]["cudaops"]
    assert entry["args"][-1] == "knowledge"
    assert not (home.home / ".codex").exists()


def test_what_cannot_be_is_said(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    scope = ["mcp", "install", "--client", "windsurf", "--scope", "project"]
    assert run_command(scope) == EXIT_INPUT
    assert "--scope user" in capsys.readouterr().err
    assert run_command(["mcp", "install", "--client", "gemini", "--env", "A B"]) == EXIT_INPUT
    assert "NAME=VALUE" in capsys.readouterr().err
