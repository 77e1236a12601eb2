"""Memory in one run: taken once at its start, added to after every judgement, and by `confirm`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple, get_args

from pydantic import ValidationError

from cudaops.agents.supervisor import attempt_of
from cudaops.cuda.devices import device
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.domain.hypothesis import Family
from cudaops.domain.judgement import Attempt
from cudaops.domain.memory import KernelKey
from cudaops.domain.profile import Verdict
from cudaops.domain.run import RunOptions
from cudaops.errors import EnvironmentFailure, InputError
from cudaops.graph.certificate import Certified, Decided
from cudaops.graph.context import Context
from cudaops.graph.events import utc_now
from cudaops.graph.folder import run_id_of, write_whole
from cudaops.graph.state import State
from cudaops.memory.run_memory import MemorySnapshot, RunMemory, entry_again, entry_of
from cudaops.memory.store import MemoryStore
from cudaops.program.fingerprint import structure_key
from cudaops.reports import json as run_json
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
    snapshot: MemorySnapshot | None = None
    with contextlib.suppress(FileNotFoundError, ValidationError):
        snapshot = MemorySnapshot.model_validate_json(kept.read_text("utf-8"))
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
    run_id = run_id_of(context.bench.kernel.name, context.bench.folder)
    entry = entry_of(attempt, subtype=verdict.subtype, run_id=run_id, date=utc_now())
    if entry is None:
        return None
    reason = attempt.judgement.reason
    if reason not in entry.lesson:  # a model's own line says what to do, not what happened
        entry = entry.model_copy(update={"lesson": f"{reason}. Learnt: {entry.lesson}"})
    if attempt.techniques:
        told = "; ".join(one.line for one in attempt.techniques)
        entry = entry.model_copy(update={"lesson": f"techniques: {told}. {entry.lesson}"})
    return memory.keep(entry)


AGAIN = "judged again with new inputs: "
"""Begins the lesson of what `confirm` found."""


def remember_again(
    certified: Certified,
    again: Decided,
    bench: Workbench,
    options: RunOptions,
    settings: Settings,
    *,
    ours: bool,
) -> str | None:
    """Add what judging a certified rewrite again came to, for this kernel and this device.

    Gives a notice where memory cannot be read or written.

    Args:
        certified: The run folder it came from.
        again: The rewrite with its new judgement.
        bench: The run's program, open on this machine.
        options: The run's; without `use_memory` nothing is written.
        settings: Where memory is, or that it is switched off.
        ours: Whether this machine's key signed the certificate. What a stranger says of who
            proposed the rewrite must not put one of our recipes last.
    """
    folder = settings.memory_folder if options.use_memory else None
    if folder is None:
        return None
    key, memory, filed = key_of(bench), MemoryStore(folder), _filed(certified)
    attempt = attempt_of(again.evaluation, again.judgement, again.iteration, family=filed.family)
    lesson = AGAIN + attempt.lesson
    attempt = attempt.model_copy(
        update={"lesson": lesson, "proposer": attempt.proposer if ours else "user"}
    )
    try:
        known = [m for m in memory.kernels() if m.key.structure == key.structure]
        known.sort(key=lambda m: m.key.device_class != key.device_class)
        entry = entry_again(
            attempt,
            known,
            subtype=filed.subtype,
            run_id=certified.certificate.run_id,
            date=utc_now(),
        )
        if entry is not None:
            memory.record(key, entry)
    except EnvironmentFailure as error:
        return f"{error.problem}; this result is not stored ({error.remedy})"
    return None


class _Filed(NamedTuple):
    """Under what the run put its rewrite."""

    subtype: str = "unknown"
    """Of what limits the author's kernel."""
    family: str | None = None


def _filed(certified: Certified) -> _Filed:
    """As `run.json` says it, which no certificate covers: words that cudaops does not know are
    left out."""
    try:
        record = run_json.loads((certified.folder / "run.json").read_text("utf-8"), "run.json")
    except (OSError, UnicodeDecodeError, InputError):
        return _Filed()
    subtype = record.profile.subtype if record.profile else ""
    same = [a for a in record.attempts if a.source_id == certified.rewrite.source_id]
    family = same[-1].family if same else None
    return _Filed(
        subtype if subtype in SUBTYPES else "unknown",
        family if family in get_args(Family) else None,
    )
