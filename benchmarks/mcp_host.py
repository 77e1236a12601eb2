"""A real MCP host drives cudaops by tools alone: Claude Code, its model a script on this machine.

    npm install @anthropic-ai/claude-code
    python -m benchmarks.mcp_host node_modules/.bin/claude

The host is told of cudaops by `cudaops mcp install` in a home folder of its own, and asks a
stand-in for Anthropic's Messages API that always calls the next tool. Prints what the model was
shown.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PREFIX = "mcp__cudaops__"
WAIT = "WaitForMcpServers"
"""Claude Code's own tool, while servers come up."""
WHOLE_S = 600.0

Call = tuple[str, dict[str, Any]]


class Script:
    """What the model does: every tool of the loop once, with what the one before has answered."""

    def __init__(self, program: Path) -> None:
        self.program = program
        self.asked: list[tuple[str, float]] = []
        self.shown: list[tuple[str, int, float, str]] = []
        """Tool, characters of its answer, seconds, its beginning."""
        self._idea: dict[str, Any] = {}
        self._steps: list[Callable[[str], Call | None]] = [
            lambda _: ("open_program", {"path": str(self.program)}),
            lambda _: ("profile_kernel", {}),
            lambda said: ("search_knowledge", {"query": json.loads(said)["verdict"]["relief"]}),
            lambda _: ("judge_rewrite", {"source": "__global__ void broken("}),
            lambda _: ("propose_rewrites", {"limit": 1}),
            self._tune,
            lambda said: ("judge_rewrite", self._judge(json.loads(said)["best"])),
            lambda said: ("accept_rewrite", {"rewrite_id": json.loads(said)["rewrite_id"]}),
        ]

    def next(self, said: str, is_error: bool) -> Call | None:
        """The call after an answer; None at the end."""
        if self.asked:
            tool, at = self.asked[-1]
            start = ("refused: " if is_error else "") + said[:100]
            self.shown.append((tool, len(said), time.monotonic() - at, start))
        step = len(self.asked)
        call = self._steps[step](said) if step < len(self._steps) else None
        if call is not None:
            self.asked.append((call[0], time.monotonic()))
        return call

    def _tune(self, said: str) -> Call:
        self._idea = json.loads(said)["proposals"][0]
        return "tune_rewrite", {"source": self._idea["source"], "max_trials": 3}

    def _judge(self, tuned: dict[str, int]) -> dict[str, Any]:
        return {"source": self._idea["source"], "tuned": tuned, "title": self._idea["title"]}


def answer_of(request: dict[str, Any], script: Script) -> dict[str, Any] | None:
    """The content block that the model answers with; None: it has nothing more to do."""
    names = {str(tool.get("name")) for tool in request.get("tools", [])}
    blocks = [
        block
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "tool_result"
    ]
    if f"{PREFIX}open_program" not in names:
        waiting = WAIT in names and len(blocks) < 5
        return {"name": WAIT, "input": {}} if waiting else None
    ours = [block for block in blocks if not block["tool_use_id"].endswith(WAIT)]
    said, is_error = _text(ours[-1]) if ours else ("", False)
    call = script.next(said, is_error)
    return None if call is None else {"name": PREFIX + call[0], "input": call[1]}


def _text(block: dict[str, Any]) -> tuple[str, bool]:
    content = block["content"]
    if not isinstance(content, str):
        content = "".join(piece.get("text", "") for piece in content)
    return content, bool(block.get("is_error"))


def events_of(block: dict[str, Any] | None, model: str, number: int) -> str:
    """The stream of one message (Messages API, `stream: true`)."""
    said: list[str] = []

    def event(kind: str, **data: Any) -> None:
        said.append(f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n")

    message: dict[str, Any] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    event("message_start", message=message)
    if block is None:
        event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "done"})
    else:
        id = f"toolu_{number}_{block['name'].removeprefix(PREFIX)}"
        use = {"type": "tool_use", "id": id, "name": block["name"], "input": {}}
        event("content_block_start", index=0, content_block=use)
        given = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        event("content_block_delta", index=0, delta=given)
    event("content_block_stop", index=0)
    stop = {"stop_reason": "end_turn" if block is None else "tool_use", "stop_sequence": None}
    event("message_delta", delta=stop, usage={"output_tokens": 1})
    event("message_stop")
    return "".join(said)


def serve(script: Script) -> ThreadingHTTPServer:
    """The stand-in, listening on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path.split("?")[0] != "/v1/messages":
                return self._send(404, "application/json", "{}")
            request = json.loads(body)
            number = len(script.asked)
            block = answer_of(request, script)
            stream = events_of(block, str(request.get("model")), number)
            return self._send(200, "text/event-stream", stream)

        def do_HEAD(self) -> None:
            self._send(200, "text/plain", "")

        def log_message(self, *_: Any) -> None:
            pass

        def _send(self, status: int, kind: str, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    """Install, list, drive."""
    claude = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="cudaops-host-") as name:
        home = Path(name)
        program = home / "naive_matmul.cu"
        example = (ROOT / "examples" / "naive_matmul.cu").read_text("utf-8")
        text = re.sub(r"= 1024\b", "= 256", example)
        program.write_text(text, "utf-8")
        script = Script(program)
        server = serve(script)
        environment = {
            **os.environ,
            "HOME": name,
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

        def run(*command: str) -> str:
            done = subprocess.run(
                command, cwd=home, env=environment, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=WHOLE_S, check=False,
            )  # fmt: skip
            return (done.stdout + done.stderr).strip()

        print(run(claude, "--version"))
        install = ("mcp", "install", "--client", "claude-code", "--yes")
        print(run(sys.executable, "-m", "cudaops", *install).splitlines()[-1])
        print(run(claude, "mcp", "list").splitlines()[-1])
        started = time.monotonic()
        run(claude, "-p", f"Make {program} faster", "--allowedTools", "mcp__cudaops")
        for tool, chars, seconds, start in script.shown:
            print(f"{tool:18} {chars:7,} characters {seconds:6.1f} s  {start}")
        print(f"{time.monotonic() - started:.1f} s in all; the program is unchanged: ", end="")
        print(program.read_text("utf-8") == text)
        server.shutdown()


if __name__ == "__main__":
    main()
