"""`from cudaops import optimize`: the commands as functions, for notebooks and scripts.

They take what the command line takes, read the same settings, and give the record instead of
printing it. Each works in a thread that has an event loop, as a notebook's has, and each `_async`
twin leaves that loop free and stops the run where its task is cancelled.

All raise InputError (what was given is wrong: one line that says what to do) and EnvironmentFailure
(this machine cannot do it, with a remedy).
"""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Annotated, Any, ParamSpec, Protocol, TypeVar

from pydantic import Field, ValidationError, validate_call

from cudaops.domain.judgement import Policy, Precision
from cudaops.domain.run import (
    AwaitsReview,
    Event,
    ExecutorChoice,
    ProfileSummary,
    ReviewAnswer,
    ReviewRequest,
    RunOptions,
    RunRecord,
)
from cudaops.domain.search import SearchOptions, Strategy
from cudaops.errors import CudaOpsError, EnvironmentFailure, InputError
from cudaops.graph.placing import (
    REMOTE_NOTE,
    ExecutorName,
    OptimizerChoice,
    Target,
    choose,
    new_folder,
    place,
    run_options,
    source_file,
)
from cudaops.settings import Settings, load_settings

__all__ = [
    "AwaitsReview",
    "CudaOpsError",
    "EnvironmentFailure",
    "Event",
    "InputError",
    "ProfileSummary",
    "Report",
    "ReviewAnswer",
    "ReviewRequest",
    "RunRecord",
    "optimize",
    "optimize_async",
    "profile",
    "resume",
    "resume_async",
    "show",
    "verify",
]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

OnEvent = Callable[[Event], object]
"""Told what a run is doing, line by line, from the thread in which it works."""
Review = Callable[[ReviewRequest], ReviewAnswer | bool | None]
"""Asked before anything is accepted; None leaves the run waiting: AwaitsReview is raised."""

Seconds = Annotated[float, Field(ge=1)]
Bar = Annotated[float, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]

REVIEWER = "whoever called cudaops from Python"
"""Who answered a review, where the answer was only yes or no."""


def _checked(call: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Arguments that are not what the signature says are an InputError, one line."""
    valid = validate_call(call)

    @functools.wraps(call)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return valid(*args, **kwargs)
        except ValidationError as error:
            if error.title != call.__name__:
                raise  # a record of ours inside: our fault, not the caller's
            first = error.errors(include_url=False)[0]
            name = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{call.__name__}: {name}: {first['msg']}") from None

    return checked


def _apart(work: Callable[[], Result]) -> Result:
    """Do it here, or in a thread where this one has a running event loop: a run has its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    from cudaops.executors.stopping import Stop, stopping

    stop = Stop()
    with stopping(stop), ThreadPoolExecutor(1, "cudaops") as thread:
        done = thread.submit(copy_context().run, work)
        try:
            return done.result()
        except KeyboardInterrupt:  # a notebook's stop button
            stop.ask()
            raise


def _awaitable(
    call: Callable[Arguments, Result],
) -> Callable[Arguments, Coroutine[Any, Any, Result]]:
    """The same for an event loop. Cancelling it ends the children before it is seen as cancelled;
    a run that got past intake goes on with `resume`."""

    @functools.wraps(call)
    async def waiting(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        from cudaops.executors.stopping import Stop, stopping

        stop = Stop()
        with stopping(stop):
            work = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.ask()
            await asyncio.wait([work])
            work.exception()  # nobody else asks for it
            raise

    waiting.__name__ = f"{call.__name__}_async"
    waiting.__qualname__ = waiting.__name__
    return waiting


@_checked
def optimize(
    source: str | Path,
    *,
    argv: Sequence[str] = (),
    kernel: str | None = None,
    executor: ExecutorChoice | None = None,
    optimizer: OptimizerChoice = "auto",
    model: str | None = None,
    strategy: Strategy = "greedy",
    beam_width: Annotated[int, Field(ge=1, le=16)] = 4,
    beam_rounds: Annotated[int, Field(ge=1, le=20)] = 3,
    max_iterations: Annotated[int, Field(ge=1, le=50)] = 3,
    max_cost_usd: Annotated[float, Field(ge=0)] | None = None,
    max_tokens: Annotated[int, Field(ge=1)] | None = None,
    max_trials: Annotated[int, Field(ge=1)] = 10,
    budget_minutes: Annotated[float, Field(ge=0)] | None = None,
    min_speedup: Bar = 1.2,
    device: str | None = None,
    arch: str | None = None,
    seed: Seed | None = None,
    timeout_seconds: Seconds = 120.0,
    allow_precision: Precision | None = None,
    allow_libraries: bool = False,
    review: Review | None = None,
    use_memory: bool = True,
    trust_source: bool = False,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
) -> RunRecord:
    """Profile, diagnose, rewrite and verify the kernel that matters in the program `source`.

    The arguments are those of `cudaops run` (README, `cudaops run --help`). `review` is asked
    before anything is accepted; `on_event` is told what the run is doing. Both are called from the
    thread in which it works. Give `out`, a new folder, where you may want to `resume`.

    Raises AwaitsReview where `review` gives None.
    """
    settings = load_settings()
    policy = Policy(
        min_speedup=min_speedup,
        seed=seed,
        allow_precision=allow_precision,
        allow_libraries=allow_libraries,
        review=review is not None,
    )
    placed = _placed(source, out, settings, kernel, executor, device, arch)
    proposing = choose(optimizer, model, settings, placed[-1].executor)._replace(
        search=SearchOptions(strategy=strategy, width=beam_width, rounds=beam_rounds),
        max_cost_usd=max_cost_usd,
        max_tokens=max_tokens,
        max_trials=max_trials,
        budget_minutes=budget_minutes,
        use_memory=use_memory,
    )
    options = run_options(
        *placed,
        argv=tuple(argv), kernel=kernel, proposing=proposing, max_iterations=max_iterations,
        timeout_s=timeout_seconds, policy=policy, trust_source=trust_source,
    )  # fmt: skip
    run = runner_of(options.executor)
    return _apart(lambda: run.start(options, _told(on_event), settings, _asked(review)))


@_checked
def resume(
    folder: str | Path, *, review: Review | None = None, on_event: OnEvent | None = None
) -> RunRecord:
    """Go on with the run in `folder` that was cancelled, killed, or waits for a review.

    No finished stage runs twice. Raises AwaitsReview as `optimize` does.
    """
    settings, path = load_settings(), Path(folder).resolve()
    run = runner_of_folder(path)
    return _apart(lambda: run.resume(path, _told(on_event), settings, _asked(review)))


@_checked
def verify(
    baseline: str | Path,
    candidate: str | Path,
    *,
    argv: Sequence[str] = (),
    kernel: str | None = None,
    executor: ExecutorChoice | None = None,
    min_speedup: Bar = 1.2,
    device: str | None = None,
    arch: str | None = None,
    seed: Seed | None = None,
    timeout_seconds: Seconds = 120.0,
    allow_precision: Precision | None = None,
    allow_libraries: bool = False,
    trust_source: bool = False,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
) -> RunRecord:
    """Judge the program or rewrite `candidate` against `baseline`, as `cudaops verify` does."""
    settings, rewrite = load_settings(), source_file(_path(candidate))
    policy = Policy(
        min_speedup=min_speedup,
        seed=seed,
        allow_precision=allow_precision,
        allow_libraries=allow_libraries,
    )
    options = run_options(
        *_placed(baseline, out, settings, kernel, executor, device, arch),
        argv=tuple(argv), kernel=kernel, timeout_s=timeout_seconds, policy=policy,
        trust_source=trust_source,
    )  # fmt: skip
    base = Path(options.source)
    run = runner_of(options.executor)
    return _apart(lambda: run.verify_files(base, rewrite, options, _told(on_event), settings))


@_checked
def profile(
    source: str | Path,
    *,
    argv: Sequence[str] = (),
    kernel: str | None = None,
    executor: ExecutorChoice | None = None,
    device: str | None = None,
    arch: str | None = None,
    timeout_seconds: Seconds = 120.0,
    trust_source: bool = False,
    on_event: OnEvent | None = None,
) -> ProfileSummary:
    """Say what limits the kernel of the program `source`, as `cudaops profile` does."""
    settings = load_settings()
    options = run_options(
        *_placed(source, None, settings, kernel, executor, device, arch),
        argv=tuple(argv), kernel=kernel, timeout_s=timeout_seconds, trust_source=trust_source,
    )  # fmt: skip
    run = runner_of(options.executor)
    return _apart(lambda: run.profile_only(options, _told(on_event), settings))


optimize_async = _awaitable(optimize)
resume_async = _awaitable(resume)


class Report(str):
    """A record's report in Markdown, which a notebook sets."""

    def _repr_markdown_(self) -> str:
        return str(self)


def show(record: RunRecord) -> Report:
    """The report of a record: the last line of a notebook's cell, or to be printed."""
    from cudaops.reports.markdown import run_report

    return Report(run_report(record))


class Runner(Protocol):
    """Who does a run: `graph/run.py` here, `service/client.py` by a service."""

    def start(
        self,
        options: RunOptions,
        on_event: Callable[[Event], None],
        settings: Settings,
        on_review: Callable[[ReviewRequest], ReviewAnswer | None],
        /,
    ) -> RunRecord: ...

    def resume(
        self,
        folder: Path,
        on_event: Callable[[Event], None],
        settings: Settings,
        on_review: Callable[[ReviewRequest], ReviewAnswer | None],
        /,
    ) -> RunRecord: ...

    def verify_files(
        self,
        base: Path,
        candidate: Path,
        options: RunOptions,
        on_event: Callable[[Event], None],
        settings: Settings,
        /,
    ) -> RunRecord: ...

    def profile_only(
        self, options: RunOptions, on_event: Callable[[Event], None], settings: Settings, /
    ) -> ProfileSummary: ...


def runner_of(executor: ExecutorName) -> Runner:
    """Who runs for this executor; loaded now."""
    if executor == "remote":
        from cudaops.service import client

        return client
    from cudaops.graph import run

    return run


def runner_of_folder(folder: Path) -> Runner:
    """Who resumes the run in this folder."""
    return runner_of("remote" if (folder / REMOTE_NOTE).is_file() else "cpu")


def _placed(
    source: str | Path,
    out: str | Path | None,
    settings: Settings,
    kernel: str | None,
    executor: ExecutorChoice | None,
    device: str | None,
    arch: str | None,
) -> tuple[Path, Path, Target]:
    """The source, the run's folder, and where to work on it; a warning where that is not what was
    hoped for."""
    path, where = source_file(_path(source)), place(executor or settings.executor, device, arch)
    if where.notice is not None:
        warnings.warn(f"{where.notice}; going on with the processor", stacklevel=4)
    folder = new_folder(None if out is None else Path(out), settings.runs, path, kernel)
    return path, folder, where


def _path(given: str | Path) -> Path:
    """A path. CUDA text in its place is the likeliest mistake of a notebook."""
    if "\n" in str(given):
        raise InputError(
            "source is a path, not CUDA text; write the text into a file and name that "
            "(in a notebook: %%writefile kernel.cu)"
        )
    return Path(given)


def _told(on_event: OnEvent | None) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        if on_event is not None:
            on_event(event)

    return tell


def _asked(review: Review | None) -> Callable[[ReviewRequest], ReviewAnswer | None]:
    def ask(request: ReviewRequest) -> ReviewAnswer | None:
        answer = None if review is None else review(request)
        return ReviewAnswer(accept=answer, by=REVIEWER) if isinstance(answer, bool) else answer

    return ask
