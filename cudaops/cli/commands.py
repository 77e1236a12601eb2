"""The commands of `cudaops`: parse, hand over, print, exit code. What they do is elsewhere."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group

from cudaops.cli.boundary import (
    EXIT_BY_OUTCOME,
    EXIT_ENVIRONMENT,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_FOUND,
    EXIT_WAITING,
    console_on,
    print_out,
)
from cudaops.cli.options import (
    HtmlOption,
    HtmlOutOption,
    JsonOption,
    OutOption,
    RunArgument,
    VerboseOption,
    with_options,
)
from cudaops.cli.runs import (
    find_folder,
    how_to_answer,
    load_record,
    reviewer_from_options,
    reviewer_on_terminal,
    seen_from_here,
)
from cudaops.domain.options import (
    ExecutorOptions,
    OptimizeOptions,
    ProfileOptions,
    ReviewOptions,
    TrustOptions,
    VerifyOptions,
)
from cudaops.domain.profile import Profile
from cudaops.domain.run import AwaitsReview, ProfileSummary, RunOptions, RunRecord
from cudaops.errors import InputError, PrerequisiteError
from cudaops.executors.stopping import Stop, Stopped, stopping
from cudaops.graph.folder import alone
from cudaops.graph.resolve_options import (
    REMOTE_NOTE,
    new_folder,
    place,
    resolve,
    source_file,
)
from cudaops.program.compilation import read_compilation
from cudaops.reports import json as run_json
from cudaops.reports import markdown, terminal
from cudaops.reports.terminal import Progress
from cudaops.settings import Settings, load_settings

if TYPE_CHECKING:
    from cudaops.cuda.devices import Device

REPORT_SUFFIXES = (".csv", ".ncu-rep")


class RunCommand(OptimizeOptions, ReviewOptions):
    """Options of `run`."""


@with_options
def run(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE.cu]",
            help="The program (optional if --nvcc names it; with "
            "--build: the file of the kernel with most time).",
        ),
    ] = None,
    *,
    options: RunCommand,
    out: OutOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Profile, diagnose, rewrite and verify the most expensive kernel of FILE.cu."""
    settings = load_settings()
    named = _named(source, options)
    if named is None and options.build_command is None:
        raise InputError("name the program: cudaops run FILE.cu")
    path = None if named is None else source_file(named)
    _run(_resolved(options, path, out, settings), settings, verbose, as_json)


def _named(source: Path | None, options: OptimizeOptions | ProfileOptions) -> Path | None:
    """FILE, or the source that `--nvcc` names; None for what a build shows to matter."""
    if source is not None and options.build_command is not None and source.is_dir():
        return None
    if source is None and options.nvcc is not None:
        _, named = read_compilation(options.nvcc, Path.cwd())
        return None if named is None else Path(named)
    return source


def _run(options: RunOptions, settings: Settings, verbose: bool, as_json: bool) -> None:
    from cudaops.api import runner_of

    with _live(Path(options.out)) as progress:
        reviewer = reviewer_on_terminal(progress)
        record = runner_of(options.executor).start(options, progress, settings, reviewer)
    _finish(record, verbose=verbose, as_json=as_json)


def resume(
    run: RunArgument = "latest",
    accept: Annotated[
        bool | None, typer.Option("--yes/--no", help="Answer the review that the run waits for.")
    ] = None,
    note: Annotated[str, typer.Option(help="Why, in your words; kept with the answer.")] = "",
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Continue a run that was killed or waits for a review; finished stages are kept."""
    settings = load_settings()
    folder = find_folder(run, settings.runs)
    from cudaops.api import runner_of_folder

    # Ctrl-C ends a service's job: nothing is left to go on with.
    resumable = None if (folder / REMOTE_NOTE).is_file() else folder
    with _live(resumable) as progress:
        reviewer = reviewer_from_options(accept, note, progress)
        record = runner_of_folder(folder).resume(folder, progress, settings, reviewer)
    _finish(record, verbose=verbose, as_json=as_json)


class ApplyOptions(ExecutorOptions, TrustOptions):
    """Options of `apply --check`; the rest is from the run."""


@with_options
def apply(
    run: RunArgument = "latest",
    *,
    options: ApplyOptions,
    revert: Annotated[bool, typer.Option("--revert", help="Remove the rewrite again.")] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Build, run and time the program before and after, and revert the rewrite "
            "if it does not build, prints something else or is slower.",
        ),
    ] = False,
) -> None:
    """Apply a run's rewrite to your own files, or revert it."""
    from cudaops.graph.apply import apply_checked, open_target, put_in, take_out

    if check and revert:
        raise InputError("--check applies the rewrite and --revert removes it: give one of them")
    settings = load_settings()
    folder = find_folder(run, settings.runs)
    target = open_target(folder, load_record(folder))
    with alone(folder), _ended_as_interrupted():
        if not check:
            for path in take_out(target) if revert else put_in(target):
                typer.echo(f"{'as it was' if revert else 'rewritten'}: {path}")
            return
        here = _moved(target.record.options, options, settings)
        here = here.model_copy(update={"out": str(folder)})
        found = apply_checked(target, here, settings, lambda line: typer.echo(line, err=True))
    for name in found.files:
        typer.echo(f"{'rewritten' if found.result == 'kept' else 'as it was'}: {name}")
    typer.echo(f"{found.result.replace('_', ' ')}: {found.reason}")
    if found.result != "kept":
        raise typer.Exit(EXIT_NOTHING_FOUND)


def _moved(made: RunOptions, asked: ApplyOptions, settings: Settings) -> RunOptions:
    """A run's options for this machine: its GPU, else the processor as the run's device."""
    where = place(asked.executor or settings.executor, None, None)
    if where.notice is not None:
        typer.echo(f"cudaops: {where.notice}; continuing on the CPU", err=True)
    if where.executor == "cpu":
        where = where._replace(device=made.device, sm_arch=made.sm_arch)
    # Trust never as the folder says: it may be a stranger's.
    return made.model_copy(
        update={
            "executor": where.executor,
            "device": where.device,
            "sm_arch": where.sm_arch,
            "trust_source": asked.trust_source,
        }
    )


@with_options
def profile(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The program, or an ncu report."),
    ] = None,
    *,
    options: ProfileOptions,
    report: Annotated[
        Path | None,
        typer.Option("--from", help="ncu's report (.ncu-rep) or CSV page, no GPU needed."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Profile a kernel and say what limits it; --from reads an ncu report."""
    named = _named(source, options)
    chosen = report is None and named is None and options.build_command is not None
    path = None if chosen else source_file(one_of(named, report))
    if path is not None and (report is not None or path.suffix in REPORT_SUFFIXES):
        _print_profile(profile_of_report(path, options.kernel, options.device), as_json)
        return
    settings = load_settings()
    resolved = _resolved(options, path, None, settings)
    from cudaops.api import runner_of

    if resolved.is_triton:
        from cudaops.graph.triton_run import profile_lines

        with _live(None) as progress:
            lines = profile_lines(resolved, progress, settings)
        print_out(json.dumps(lines, indent=2) if as_json else "\n".join(lines))
        return
    with _live(None) as progress:
        summary = runner_of(resolved.executor).profile_only(resolved, progress, settings)
    _print_profile(summary, as_json)


def report(
    run: RunArgument = "latest",
    as_html: HtmlOption = False,
    out: HtmlOutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a run's evidence and write report.md again, or one HTML file."""
    folder = find_folder(run, load_settings().runs)
    record = load_record(folder)
    if out is not None and not as_html:
        raise InputError("--out names the HTML file: give --html with it")
    if as_html:
        typer.echo(f"written: {write_html(folder, out, as_json=as_json)}")
        return
    # The folder may have been moved or copied since.
    record = record.model_copy(
        update={"options": record.options.model_copy(update={"out": str(folder)})}
    )
    (folder / "report.md").write_text(markdown.run_report(record), encoding="utf-8")
    print_out(run_json.dumps(record) if as_json else terminal.run_summary(seen_from_here(record)))


@with_options
def verify(
    baseline: Annotated[Path, typer.Argument(metavar="BASE.cu", help="The program to match.")],
    candidate: Annotated[
        Path, typer.Argument(metavar="CAND.cu", help="The rewrite of it to judge.")
    ],
    *,
    options: VerifyOptions,
    out: OutOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Judge CAND.cu against BASE.cu: same function, same precision, faster."""
    settings = load_settings()
    path, rewrite = source_file(baseline), source_file(candidate)
    resolved = _resolved(options, path, out, settings)
    from cudaops.api import runner_of

    with _live(None) as progress:
        runner = runner_of(resolved.executor)
        judged = runner.verify_files(path, rewrite, resolved, progress, settings)
    _finish(judged, verbose=verbose, as_json=as_json)


def doctor(as_json: JsonOption = False) -> None:
    """Check this machine's compilers, GPU and profiler, with a remedy for each failure."""
    from cudaops import doctor as checks

    report_of_rungs = checks.examine(load_settings())
    print_out(
        report_of_rungs.model_dump_json(indent=2) if as_json else checks.table(report_of_rungs)
    )
    if not report_of_rungs.ready:
        raise typer.Exit(EXIT_ENVIRONMENT)


def _resolved(
    options: OptimizeOptions | VerifyOptions | ProfileOptions,
    source: Path | None,
    out: Path | None,
    settings: Settings,
) -> RunOptions:
    """The options of a run in a new folder; says why a GPU that is there is not used. `source`:
    None for the file of a project's hottest kernel."""
    where = place(options.executor or settings.executor, options.device, options.arch)
    if where.notice is not None:
        typer.echo(f"cudaops: {where.notice}; continuing on the CPU", err=True)
    if source is None:
        here = Path.cwd()
        source = here / _hottest_file(resolve(options, here, here, where, settings), settings)
    folder = new_folder(out, settings.runs, source, options.kernel)
    return resolve(options, source, folder, where, settings)


def _hottest_file(options: RunOptions, settings: Settings) -> str:
    """The file in the project that holds its hottest kernel, or the one that is named; says which,
    and what else the program launches."""
    from cudaops.graph.services import survey

    typer.echo("cudaops: building the project and running it once", err=True)
    with _live(None):
        found = survey(options, settings)
    for line in terminal.launch_lines(found.counts, found.files):
        typer.echo(f"  {line}", err=True)
    file = found.files[found.kernel]
    typer.echo(f"cudaops: working on {found.kernel} in {file}", err=True)
    return file


@contextmanager
def _live(folder: Path | None) -> Iterator[Progress]:
    """Progress on stderr; Ctrl-C, a signal that ends us, and a review say how to go on with the run
    in `folder`."""
    try:
        with _ended_as_interrupted(), Progress(console_on(stderr=True)) as progress:
            yield progress
    except (KeyboardInterrupt, Stopped):
        begun = folder is not None and folder.is_dir()
        how = f"; continue with: python -m cudaops resume {folder}" if begun else ""
        typer.echo(f"cudaops: interrupted{how}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except AwaitsReview as waiting:
        typer.echo(how_to_answer(waiting.request, folder or Path()), err=True)
        raise typer.Exit(EXIT_WAITING) from None


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP as Ctrl-C: nothing of ours is left running, a database least of all."""
    stop = Stop()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise KeyboardInterrupt from None
        stop.ask()  # an exception would come out of the loop, in the middle of whatever it does

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {
        n: signal.signal(n, interrupt) for n in numbers if signal.getsignal(n) is signal.SIG_DFL
    }
    try:
        with stopping(stop):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _finish(record: RunRecord, *, verbose: bool, as_json: bool) -> None:
    summary = terminal.run_summary if verbose else terminal.short_summary
    print_out(run_json.dumps(record) if as_json else summary(seen_from_here(record)))
    raise typer.Exit(EXIT_BY_OUTCOME[record.outcome])


def _print_profile(summary: ProfileSummary, as_json: bool) -> None:
    print_out(
        summary.model_dump_json(indent=2) if as_json else Group(*terminal.profile_parts(summary))
    )


def write_html(folder: Path, out: Path | None, *, as_json: bool) -> Path:
    """Write the report of the run in `folder`; gives the file.

    Raises:
        InputError: no finished run, or JSON was asked for as well.
        PrerequisiteError: the file cannot be written.
    """
    if as_json:
        raise InputError("--html and --json do not go together: --json alone prints the record")
    from cudaops.graph.html_report import REPORT_NAME, html_report

    path = out or folder / REPORT_NAME
    text = html_report(folder)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror}"
        raise PrerequisiteError(problem, "name another file with --out") from error
    return path


def one_of(source: Path | None, report: Path | None) -> Path:
    """The program or the report, whichever was given. Raises InputError: neither, or both."""
    if source is not None and report is not None:
        raise InputError("name a program or a report with --from, not both")
    given = source or report
    if given is None:
        raise InputError("name the program, or with --from what ncu has written")
    return given


def profile_of_report(path: Path, kernel: str | None, device: str | None) -> ProfileSummary:
    """Metrics and verdict of the longest launch in an ncu report, of `kernel` where one is named.

    `device` None means the one the report names, or the only known one it can have been.
    Raises InputError: not a report or CSV page, no such kernel, unknown device; PrerequisiteError:
    a `.ncu-rep` without the `ncu` extra.
    """
    from cudaops.cuda.ncu_pages import metrics_parsed
    from cudaops.cuda.verdict import diagnose

    profile = _longest(_profiles(path), path, kernel)
    row, profile = _on_device(profile, device, path)
    verdict = diagnose(profile, row)
    return ProfileSummary(
        verdict=verdict.summary,
        subtype=verdict.subtype,
        metrics_parsed=metrics_parsed(profile),
        baseline=profile,
        verdict_detail=verdict,
    )


def _profiles(path: Path) -> list[Profile]:
    from cudaops.cuda.ncu_pages import parse_csv
    from cudaops.executors.cuda.ncu_rep import profile_of, read_report

    if path.suffix == ".ncu-rep":
        return [profile_of(launch) for launch in read_report(path)]
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return [launch.profile for launch in parse_csv(text)]


def _longest(profiles: list[Profile], path: Path, kernel: str | None) -> Profile:
    named = [profile for profile in profiles if kernel in (None, profile.kernel)]
    if not named:
        known = ", ".join(sorted({profile.kernel for profile in profiles}))
        raise InputError(f"there is no launch of {kernel!r} in {path.name}; it has {known}")
    return max(named, key=lambda profile: profile.duration_us)


def _on_device(profile: Profile, named: str | None, path: Path) -> tuple[Device, Profile]:
    """The device that was named, that the report names, or the only one it can have been."""
    from cudaops.cuda.devices import DEVICES
    from cudaops.cuda.devices import device as find_device
    from cudaops.cuda.ncu_pages import likely_devices

    if named is not None or profile.device in DEVICES:
        row = find_device(named or profile.device)
        return row, profile.model_copy(update={"device": row.name})
    likely = likely_devices(profile)
    if len(likely.devices) == 1:
        row = likely.devices[0]
        told = f"device {row.name} by {likely.signs}; --device NAME says otherwise"
        return row, profile.model_copy(update={"device": row.name, "notes": (*profile.notes, told)})
    among = ", ".join(row.name for row in likely.devices) or ", ".join(DEVICES)
    raise InputError(
        f"{path.name} was recorded on {likely.signs or repr(profile.device)}; name the device: "
        f"--device NAME (one of {among})"
    )
