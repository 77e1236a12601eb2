"""Intake: a program opened and captured in a run folder, or a run folder opened again."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.run import RunOptions
from cudaops.errors import InputError
from cudaops.executors.base import Executor, close_executor
from cudaops.executors.cpu.toolchain import build_runtime, is_runtime_built
from cudaops.executors.stopping import Ahead
from cudaops.graph.events import EventLog, OnEvent, provenance, utc_now
from cudaops.graph.folder import run_folder, write_json
from cudaops.graph.services import make_executor, open_bench, with_found_device
from cudaops.program.splice import require_replaceable
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings


class OpenRun(NamedTuple):
    """A run that got past intake; all of it can be read again from its folder."""

    options: RunOptions
    bench: Workbench
    events: EventLog
    date: str
    """When intake ended; UTC, ISO 8601."""
    intake_seconds: float

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.options.out)


def begin(options: RunOptions, on_event: OnEvent, settings: Settings) -> OpenRun:
    """Intake into the new folder `options.out`. Raises as `start` does; nothing is left then.

    Whoever begins or reopens a run closes its bench's executor.
    """
    if options.is_triton:
        raise InputError(
            "Triton programs are supported by `cudaops run`, `verify` and `profile` only"
        )
    _check_services(options, settings)
    folder = Path(options.out)
    with run_folder(folder):
        events = EventLog(folder / "events.jsonl", on_event)
        bench, options, seconds = intake(options, events, settings)
        with _closed_where_it_fails(bench.executor):
            require_replaceable(bench.program, bench.kernel.name)
            date = utc_now()
            write_json(folder / "state" / "intake.json", {"date": date, "seconds": seconds})
            # Last: what `resume` looks for first.
            write_json(folder / "state" / "options.json", options.model_dump(mode="json"))
    return OpenRun(options, bench, events, date, seconds)


def reopen(folder: Path, on_event: OnEvent, settings: Settings) -> OpenRun:
    """What `begin` left in `folder`. Raises InputError where the folder holds no run."""
    try:
        options = RunOptions.model_validate_json(
            (folder / "state" / "options.json").read_text("utf-8")
        )
    except FileNotFoundError as error:
        raise InputError(f"{folder} has no run that finished its intake; start it again") from error
    _check_services(options, settings)
    options = options.model_copy(update={"out": str(folder)})
    executor = make_executor(options, settings)
    with _closed_where_it_fails(executor):
        bench = Workbench.load(
            folder,
            executor,
            options.policy,
            sm_arch=options.sm_arch,
            timeout_s=options.timeout_seconds,
        )
        intake = json.loads((folder / "state" / "intake.json").read_text("utf-8"))
        events = EventLog(folder / "events.jsonl", on_event)
    return OpenRun(options, bench, events, intake["date"], float(intake["seconds"]))


def intake(
    options: RunOptions, events: EventLog, settings: Settings, *, judged: bool = True
) -> tuple[Workbench, RunOptions, float]:
    """The open program, the options with the device that is there, and the seconds it took.
    `judged`: whether rewrites will be."""
    started = time.monotonic()
    runs = len(options.program_runs)
    often = "once" if runs == 1 else f"{runs} times"
    words = f"reading {Path(options.source).name} and running it {often}"
    if options.compiles_itself:
        words = (
            f"running {Path(options.source).name} for what it compiles, and {often} with that built"
        )
    elif options.kernel_source is not None:
        kernels = Path(options.kernel_source).name
        words = f"drawing inputs with {Path(options.source).name} and running {kernels} on them"
    events.emit("intake", "intake", "started", words)
    executor = make_executor(options, settings)
    building = Ahead()
    with contextlib.ExitStack() as failing:
        failing.callback(close_executor, executor)
        failing.callback(building.end)
        options = with_found_device(options, executor)
        if executor.name == "cpu" and not is_runtime_built(executor.cache):
            events.announcing("intake", "intake")(
                "compiling the runtime that executes kernels on the CPU (once per machine)"
            )
            building.begin(lambda: build_runtime(executor.cache))
        bench = open_bench(options, executor, judged=judged)
        seconds = time.monotonic() - started
        _tell_intake(bench, options, seconds, events)
        failing.pop_all()
    return bench, options, seconds


def _tell_intake(bench: Workbench, options: RunOptions, seconds: float, events: EventLog) -> None:
    workload = bench.workloads[0]
    launches = sum(w.launches for w in bench.workloads)
    count, runs = len(bench.workloads), len(bench.captured.runs)
    of = f" of {runs} runs" if runs > 1 else ""
    timed = bench.captured.timed.captured
    warm_ups = next((c.warm_ups for c in timed.counts if c.kernel == timed.kernel), 0)
    without = f" without {warm_ups} warm-ups" if warm_ups else ""
    kernel = bench.kernel
    shown = kernel.full_names[1] if kernel.is_overloaded else workload.callee
    found = (
        f"{shown} on grid {workload.grid} block {workload.block}, "
        f"{launches} launch{'es' * (launches != 1)}{without}, "
        f"{count} workload{'s' if count > 1 else ''}{of} captured"
    )
    data = {
        "seconds": round(seconds, 3),
        "kernel": workload.callee,
        "provenance": provenance(bench.executor.time_source, options.device),
        "min_speedup": options.policy.min_speedup,
    }
    problem = bench.program.problem
    if problem is not None:
        right = f"{bench.program.main_path} computes what {Path(problem.script).name} does"
        draws = f"on {len(bench.draws)} draws, {len(bench.draws) - 1} of them secret"
        events.emit("intake", "intake", "progress", f"{right}, {draws}")
    events.emit("intake", "intake", "finished", found, data)
    for limit in (*bench.limits, *_left_alone(bench)):
        events.emit("intake", "intake", "notice", limit)


def _left_alone(bench: Workbench) -> tuple[str, ...]:
    """What was captured of other instances of the kernel."""
    others = sorted({w.callee for w in bench.captured.workloads} - {bench.callee})
    return tuple(
        f"{other} is left as it is, but by a rewrite whose launches name the template parameters: "
        f"{bench.callee} takes more time"
        for other in others
    )


@contextlib.contextmanager
def _closed_where_it_fails(executor: Executor) -> Iterator[None]:
    try:
        yield
    except BaseException:
        close_executor(executor)
        raise


def _check_services(options: RunOptions, settings: Settings) -> None:
    """Raise before anything runs where a database or a model was asked for and cannot be had.

    Raises KnowledgeUnavailable, InputError. Imported here: without either, nothing of LangChain or
    of PostgreSQL's client need be loaded before the program is compiled.
    """
    if settings.database_url is not None:
        from cudaops.rag.server import open_database

        open_database(settings.database_url.get_secret_value()).close()
    if options.optimizer == "llm" and options.model is not None:
        from cudaops.graph.model_setup import check_model

        check_model(options.model, options, settings)
