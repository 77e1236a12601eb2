"""Memory in one run: taken once at its start, added to after every judgement."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pydantic import ValidationError

from cudaops.cuda.devices import device
from cudaops.domain.judgement import Attempt
from cudaops.domain.memory import KernelKey
from cudaops.domain.profile import Verdict
from cudaops.domain.run import RunOptions
from cudaops.graph.context import Context
from cudaops.graph.events import utc_now
from cudaops.graph.folder import write_whole
from cudaops.graph.state import State
from cudaops.memory.run_memory import RunMemory, Snapshot, entry_of
from cudaops.program.fingerprint import structure_key
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings


def key_of(bench: Workbench) -> KernelKey:
    """Which kernel this is: its structure and the class of device, not its file."""
    return KernelKey(
        structure=structure_key(bench.program, bench.kernel),
        device_class=device(bench.executor.device).sm_arch,
        name=bench.kernel.name,
    )


def open_memory(options: RunOptions, settings: Settings, bench: Workbench) -> RunMemory:
    """The run's memory with the snapshot of its start, which a resumed run finds in its folder:
    prompts and the order of recipes do not change under way."""
    folder = settings.memory_folder if options.use_memory else None
    kept = Path(options.out) / "state" / "memory.json"
    snapshot: Snapshot | None = None
    with contextlib.suppress(FileNotFoundError, ValidationError):
        snapshot = Snapshot.model_validate_json(kept.read_text("utf-8"))
    memory = RunMemory(folder, key_of(bench), snapshot)
    if snapshot is None:
        write_whole(kept, memory.snapshot.model_dump_json(indent=2) + "\n")
    return memory


def remember(state: State, context: Context, attempt: Attempt) -> str | None:
    """Add what was judged. Gives a notice where memory cannot be written for the first time."""
    memory = context.memory
    if memory is None:
        return None
    verdict = Verdict.model_validate(state["verdict"])
    run_id = f"{context.bench.kernel.name}-{context.bench.folder.name}"
    entry = entry_of(attempt, subtype=verdict.subtype, run_id=run_id, date=utc_now())
    if entry is None:
        return None
    reason = attempt.judgement.reason
    if reason not in entry.lesson:  # a model's own line says what to do, not what happened
        entry = entry.model_copy(update={"lesson": f"{reason}. Learnt: {entry.lesson}"})
    return memory.keep(entry)
