"""One small open program, a developer that asks a local NIM about it, and what it answered."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from cudaops.agents.developer import RunView
from cudaops.agents.llm_developer import Conversation, ModelDeveloper
from cudaops.agents.tools import Toolbox
from cudaops.cuda.devices import device
from cudaops.cuda.verdict import diagnose
from cudaops.domain.profile import Profile
from cudaops.graph.model_setup import brief_with
from cudaops.graph.remembering import key_of
from cudaops.graph.resolve_options import run_options, target
from cudaops.graph.services import make_executor, open_bench
from cudaops.graph.toolbox import open_knowledge
from cudaops.mcp_servers.servers import build_servers
from cudaops.mcp_servers.sessions import Session
from cudaops.memory.results import KernelMemory
from cudaops.memory.run_memory import MemorySnapshot
from cudaops.models.caller import connect
from cudaops.models.clients import ModelAccess
from cudaops.models.journal import Journal
from cudaops.models.names import parse_model
from cudaops.program.whole_program import standing_beside
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import load_settings
from tests.models.asked import Waits
from tests.nim import Nim

Result = TypeVar("Result")


class Opened(NamedTuple):
    """A program that was captured and profiled once."""

    bench: Workbench
    view: RunView
    folder: Path


def opened(source: Path, folder: Path) -> Opened:
    """Capture and profile a program on the cpu executor."""
    os.environ.setdefault("CUDAOPS_EXECUTOR", "cpu")
    options = run_options(source, folder, target("A10", None), timeout_seconds=60.0)
    bench = open_bench(options, make_executor(options, load_settings()))
    profile = bench.profile(None)
    assert isinstance(profile, Profile)
    view = RunView(
        program=bench.program,
        kernel=bench.kernel,
        workloads=bench.workloads,
        profile=profile,
        verdict=diagnose(profile, device(profile.device)),
        research=None,
        incumbent=None,
        attempts=(),
    )
    return Opened(bench, view, folder)


class Heard(NamedTuple):
    """What a developer said on the way, and how long it would have waited."""

    said: list[str]
    slept: list[float]


def develop(
    on: Opened,
    nim: Nim,
    journal: Path,
    ask: Callable[[ModelDeveloper], Awaitable[Result]],
    *,
    key: str | None = None,
) -> tuple[Result, Heard]:
    """Let a developer with NVIDIA's real client do something, without waiting between tries."""
    options = run_options(Path(on.bench.program.main_path), journal, target("A10", None))
    name = parse_model(nim.model)
    access = ModelAccess(nvidia_api_key=key or nim.key, nvidia_base_url=nim.url)
    heard, waits = Heard([], []), Waits()

    async def run() -> Result:
        calls = Journal(journal / "calls", access.secrets)
        settings = load_settings()
        servers = build_servers(Session(bench=on.bench), lambda: open_knowledge(settings))
        async with Toolbox(servers) as toolbox:
            caller = connect(name, access, journal=calls, backoff=waits.backoff)
            snapshot = MemorySnapshot(memory=KernelMemory(key=key_of(on.bench)))
            developer = ModelDeveloper(
                model=name.text,
                conversation=Conversation(caller, toolbox, calls, heard.said.append),
                toolbox=toolbox,
                journal=calls,
                brief=brief_with(options, on.bench, snapshot),
                beside=partial(standing_beside, on.bench.program),
                say=heard.said.append,
            )
            return await ask(developer)

    result = asyncio.run(run())
    return result, heard._replace(slept=waits.slept)
