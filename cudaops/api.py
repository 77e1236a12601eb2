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
import inspect
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, get_type_hints

from pydantic import ValidationError, validate_call
from pydantic.fields import FieldInfo

from cudaops.domain.options import (
    OptimizeOptions,
    ProfileOptions,
    ResolvedExecutor,
    VerifyOptions,
    as_parameter,
    bounds_of,
    described,
    fields_of,
    flattened,
    plain_type,
)
from cudaops.domain.run import (
    AwaitsReview,
    Event,
    ProfileSummary,
    ReviewAnswer,
    ReviewRequest,
    RunOptions,
    RunRecord,
)
from cudaops.errors import CudaOpsError, EnvironmentFailure, InputError
from cudaops.graph.resolve_options import (
    REMOTE_NOTE,
    new_folder,
    place,
    resolve,
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

REVIEWER = "the Python caller"
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


class OptimizeArguments(OptimizeOptions):
    """What `optimize` takes beside the source."""

    review: Review | None = None
    """Asked before anything is accepted."""
    out: str | Path | None = None
    """Run folder (default: runs/KERNEL/TIME)."""
    on_event: OnEvent | None = None
    """Told what the run is doing."""


class VerifyArguments(VerifyOptions):
    """What `verify` takes beside the two programs."""

    out: str | Path | None = None
    """Run folder (default: runs/KERNEL/TIME)."""
    on_event: OnEvent | None = None
    """Told what the run is doing."""


class ProfileArguments(ProfileOptions):
    """What `profile` takes beside the source."""

    on_event: OnEvent | None = None
    """Told what the run is doing."""


def _keywords(call: Callable[..., Any]) -> Any:
    """`call` with a keyword for each option, which its docstring then lists."""
    flat = flattened(call, _parameter, f"{call.__name__}: ")
    lines = [
        _line(name, field) for name, field in fields_of(get_type_hints(call)["options"]).items()
    ]
    flat.__doc__ = f"{inspect.cleandoc(call.__doc__ or '')}\n\nArgs:\n" + "\n".join(lines)
    return flat


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    return as_parameter(name, field).replace(annotation=plain_type(field.annotation))


def _line(name: str, field: FieldInfo) -> str:
    words = {"ge": "At least", "le": "At most"}
    bounds = bounds_of(field.rebuild_annotation()).items()
    limits = "".join(f" {words[bound]} {limit:g}." for bound, limit in bounds)
    return f"    {name}: {described(field)}{limits}"


def _of_one(
    model: Callable[Arguments, object],
) -> Callable[[Callable[..., Result]], Callable[Concatenate[str | Path, Arguments], Result]]:
    """A function of a program, with a keyword for each field of the model."""
    return _keywords


def _of_two(
    model: Callable[Arguments, object],
) -> Callable[
    [Callable[..., Result]], Callable[Concatenate[str | Path, str | Path, Arguments], Result]
]:
    """The same of two programs."""
    return _keywords


@_of_one(OptimizeArguments)
def optimize(source: str | Path, *, options: OptimizeArguments) -> RunRecord:
    """Profile, diagnose, rewrite and verify the most expensive kernel of the program `source`.

    The arguments are those of `cudaops run` (docs/cli.md, `cudaops run --help`). `review` is asked
    before anything is accepted; `on_event` is told what the run is doing. Both are called from the
    thread in which it works. Give `out`, a new folder, where you may want to `resume`.

    Raises AwaitsReview where `review` gives None.
    """
    settings = load_settings()
    resolved = _resolved(options, source, options.out, settings)
    if options.review is not None:
        policy = resolved.policy.model_copy(update={"review": True})
        resolved = resolved.model_copy(update={"policy": policy})
    tell, ask = _told(options.on_event), _asked(options.review)
    run = runner_of(resolved.executor)
    return _apart(lambda: run.start(resolved, tell, settings, ask))


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


@_of_two(VerifyArguments)
def verify(baseline: str | Path, candidate: str | Path, *, options: VerifyArguments) -> RunRecord:
    """Judge the program or rewrite `candidate` against `baseline`, as `cudaops verify` does."""
    settings, rewrite = load_settings(), source_file(_path(candidate))
    resolved = _resolved(options, baseline, options.out, settings)
    base, tell = Path(resolved.source), _told(options.on_event)
    run = runner_of(resolved.executor)
    return _apart(lambda: run.verify_files(base, rewrite, resolved, tell, settings))


@_of_one(ProfileArguments)
def profile(source: str | Path, *, options: ProfileArguments) -> ProfileSummary:
    """Say what limits the kernel of the program `source`, as `cudaops profile` does."""
    settings = load_settings()
    resolved, tell = _resolved(options, source, None, settings), _told(options.on_event)
    run = runner_of(resolved.executor)
    return _apart(lambda: run.profile_only(resolved, tell, settings))


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


def runner_of(executor: ResolvedExecutor) -> Runner:
    """Who runs for this executor; loaded now."""
    if executor == "remote":
        from cudaops.service import client

        return client
    from cudaops.graph import run

    return run


def runner_of_folder(folder: Path) -> Runner:
    """Who resumes the run in this folder."""
    return runner_of("remote" if (folder / REMOTE_NOTE).is_file() else "cpu")


def _resolved(
    options: OptimizeOptions | VerifyOptions | ProfileOptions,
    source: str | Path,
    out: str | Path | None,
    settings: Settings,
) -> RunOptions:
    """The options of a run in a new folder; a warning where it is not what was hoped for."""
    path = source_file(_path(source))
    where = place(options.executor or settings.executor, options.device, options.arch)
    if where.notice is not None:
        warnings.warn(f"{where.notice}; continuing on the CPU", stacklevel=4)
    folder = new_folder(None if out is None else Path(out), settings.runs, path, options.kernel)
    return resolve(options, path, folder, where, settings)


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
