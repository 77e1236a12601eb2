"""The loop by MCP tools alone, over stdio: how long each call takes and how long its answer is.

python -m benchmarks.mcp_tools PROGRAM.cu [cpu|cuda]
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def drive(program: Path, executor: str) -> None:
    """Open, profile, take the first proposal, tune, judge, accept."""
    command = ["-m", "cudaops", "mcp", "serve", "all", "--executor", executor]
    async with Client(StdioTransport(sys.executable, command, env=dict(os.environ))) as client:

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            started = time.monotonic()
            answer = await client.call_tool(tool, arguments, raise_on_error=False)
            text = "".join(getattr(block, "text", "") for block in answer.content)
            start = ("refused: " if answer.is_error else "") + text[:100]
            seconds = time.monotonic() - started
            print(f"{tool:18} {len(text):7,} characters {seconds:6.1f} s  {start}", flush=True)
            return answer.structured_content or {}

        await call("open_program", path=str(program))
        await call("profile_kernel")
        idea = (await call("propose_rewrites", limit=1))["proposals"][0]
        tuned = (await call("tune_rewrite", source=idea["source"], max_trials=6))["best"]
        rewrite = {"source": idea["source"], "tuned": tuned}
        judged = await call("judge_rewrite", **rewrite, title=idea["title"])
        print(f"  {judged['judgement']['reason']}")
        await call("benchmark_rewrite", **rewrite)
        kept = await call("accept_rewrite", rewrite_id=judged["rewrite_id"])
        await call("read_run", run_id=kept["run_id"], part="certificate")
        await call("profile_rewrite", **rewrite)


if __name__ == "__main__":
    asyncio.run(drive(Path(sys.argv[1]).resolve(), (*sys.argv, "cpu")[2]))
