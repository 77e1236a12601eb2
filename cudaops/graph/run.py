"""Start, resume, profile and verify: what the command line and other programs call."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cudaops.domain.run import (
    ProfileSummary,
    ReviewAnswer,
    ReviewRequest,
    RunOptions,
    RunRecord,
)
from cudaops.errors import InputError
from cudaops.executors.base import close_executor
from cudaops.executors.stopping import in_background
from cudaops.graph.events import EventLog, OnEvent, utc_now
from cudaops.graph.finishing import finish
from cudaops.graph.folder import run_folder
from cudaops.graph.opening import OpenRun, begin, intake, reopen
from cudaops.graph.services import compilation_of, warm
from cudaops.graph.verify_files import judge_candidate, replaced_by, require_replaced
from cudaops.settings import Settings

if TYPE_CHECKING:
    from cudaops.graph.loop import OnReview


def nobody(_request: ReviewRequest) -> ReviewAnswer | None:
    """No person is there to be asked."""
    return None


def start(
    options: RunOptions, on_event: OnEvent, settings: Settings, on_review: OnReview = nobody
) -> RunRecord:
    """The main job, from a `.cu` to a record in `options.out`.

    Raises InputError (nothing is left behind), EnvironmentFailure (the run can be resumed where
    it got past intake) and AwaitsReview (likewise, with the answer).
    """
    if options.is_triton:
        from cudaops.graph import triton_run

        return triton_run.start(options, on_event, settings)
    started = time.monotonic()
    in_background(_load_loop)
    open_run = begin(options, on_event, settings)
    return _to_its_end(open_run, settings, started, on_review)


def resume(
    folder: Path, on_event: OnEvent, settings: Settings, on_review: OnReview = nobody
) -> RunRecord:
    """Go on where a killed run stopped; stages that finished are not run again.

    Raises InputError where the folder holds no run, AwaitsReview as `start` does.
    """
    started = time.monotonic()
    open_run = reopen(folder, on_event, settings)
    open_run.events.emit("supervisor", "supervisor", "notice", "resumed")
    return _to_its_end(open_run, settings, started, on_review)


def profile_only(options: RunOptions, on_event: OnEvent, settings: Settings) -> ProfileSummary:
    """Metrics and verdict of the kernel, without touching it. Leaves no folder behind."""
    if options.is_triton:
        raise InputError("Triton programs have no metrics: `cudaops profile` lists their launches")
    folder = Path(options.out)
    with run_folder(folder, keep=False):
        events = EventLog(folder / "events.jsonl", on_event)
        in_background(_load_loop)
        bench, _, _ = intake(options, events, settings, judged=False)
        from cudaops.graph.loop import profile

        try:
            return asyncio.run(profile(bench, events, settings, options.ncu_every_metric))
        finally:
            close_executor(bench.executor)


def verify_files(
    base: Path, candidate: Path, options: RunOptions, on_event: OnEvent, settings: Settings
) -> RunRecord:
    """Judge a rewrite somebody else wrote: device source with directives, or a whole program.

    Where no kernel is named and a program replaces one, that one is judged.
    """
    if options.is_triton:
        from cudaops.graph import triton_run

        return triton_run.verify_files(base, candidate, options, on_event, settings)
    started = time.monotonic()
    folder = Path(options.out)
    with contextlib.ExitStack() as after:
        with run_folder(folder):
            events = EventLog(folder / "events.jsonl", on_event)
            replaced = frozenset[str]()
            if options.kernel is None:
                replaced = replaced_by(base, candidate, compilation_of(options))
            kernel = next(iter(replaced)) if len(replaced) == 1 else options.kernel
            options = options.model_copy(update={"source": str(base), "kernel": kernel})
            bench, options, _ = intake(options, events, settings)
            after.callback(close_executor, bench.executor)
            after.callback(bench.ahead.end)
            require_replaced(bench, replaced)
            warm(bench)
            seconds = time.monotonic() - started
            state = judge_candidate(bench, candidate, events)
        judged = OpenRun(options, bench, events, utc_now(), seconds)
        return finish(judged, state, started, settings)


def _load_loop() -> None:
    """Import the graph's libraries, which takes as long as a small program's capture."""
    importlib.import_module("cudaops.graph.loop")


def _to_its_end(
    open_run: OpenRun, settings: Settings, started: float, on_review: OnReview
) -> RunRecord:
    from cudaops.graph.loop import to_its_end

    return to_its_end(open_run, settings, started, on_review)
