"""How a server on stdio ends: as hosts end it, by its stdin or by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_servers.serving import MM

GENEROUS_S = 120.0
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Server:
    """`cudaops mcp serve sandbox` with a program open."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.temporary = folder / "runs", folder / "tmp"
        self.temporary.mkdir()
        places = {"CUDAOPS_RUNS": str(self.runs), "TMPDIR": str(self.temporary)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cudaops", "mcp", "serve", "sandbox"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **places},
        )
        self.ask(1, "initialize", HELLO)
        self._send({"method": "notifications/initialized"})
        opened = {"name": "open_program", "arguments": {"source": MM}}
        assert not self.ask(2, "tools/call", opened)["result"].get("isError")

    def ask(self, id: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._send({"id": id, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == id:
                return answer
        raise AssertionError("it ended without an answer")

    def left(self) -> list[Path]:
        """Files that it keeps."""
        return [p for top in (self.runs, self.temporary) for p in top.rglob("*") if p.is_file()]

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path)
    with started.process:
        yield started
        started.process.kill()


def test_a_closed_stdin_ends_it(server: Server) -> None:
    assert any(path.name.endswith(".bin") for path in server.left()), "captured buffers"
    assert server.process.stdin is not None
    server.process.stdin.close()
    assert server.process.wait(GENEROUS_S) == 0
    assert server.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_though_nothing_comes_on_stdin(server: Server, number: int) -> None:
    server.process.send_signal(number)
    assert server.process.wait(GENEROUS_S) == 128 + number
    assert server.left() == []
