"""The commands of `cudaops`: parse, hand over, print, exit code. What they do stands elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType

from cudaops import (
    cli_certify,
    cli_knowledge,
    cli_mcp,
    cli_memory,
    cli_replay,
    cli_service,
    cli_worker,
)
from cudaops.cli_boundary import (
    EXIT_BY_OUTCOME,
    EXIT_ENVIRONMENT,
    EXIT_INTERRUPTED,
    EXIT_WAITING,
)
from cudaops.cli_ncu import REPORT_SUFFIXES, one_of, profile_of_report
from cudaops.cli_options import (
    ArchOption,
    ArgvArgument,
    ClockOption,
    CostOption,
    DeviceOption,
    ExecutorOption,
    IterationsOption,
    JsonOption,
    KernelOption,
    LibrariesOption,
    MinutesOption,
    ModelOption,
    NoMemoryOption,
    OptimizerOption,
    OutOption,
    PrecisionOption,
    ReviewOption,
    RoundsOption,
    RunArgument,
    SeedOption,
    SourceArgument,
    SpeedupOption,
    StrategyOption,
    TimeoutOption,
    TokensOption,
    TrialsOption,
    TrustOption,
    WidthOption,
)
from cudaops.cli_report import HtmlOption, HtmlOutOption, write_html
from cudaops.cli_review import answering, asking, how_to_answer
from cudaops.cli_runs import find_folder, load_record, seen_from_here
from cudaops.domain.judgement import Policy
from cudaops.domain.run import AwaitsReview, ExecutorChoice, ProfileSummary, RunOptions, RunRecord
from cudaops.domain.search import SearchOptions
from cudaops.errors import InputError
from cudaops.graph.placing import Target, choose, new_folder, place, run_options, source_file
from cudaops.reports import json as run_json
from cudaops.reports import markdown, terminal
from cudaops.reports.terminal import Progress
from cudaops.settings import Settings, load_settings

app = typer.Typer(
    name="cudaops",
    help="Says what limits a CUDA kernel, rewrites it, and proves the rewrite.",
    epilog="Exit codes: 0 accepted or provisional, 1 nothing beat the bar, 2 wrong input, "
    "3 this machine cannot, 4 waits for a person (--review).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(cli_knowledge.app, name="knowledge")
app.add_typer(cli_certify.app, name="certify")
app.command("confirm")(cli_certify.confirm)
app.add_typer(cli_memory.app, name="memory")
app.add_typer(cli_mcp.app, name="mcp")
app.command("replay")(cli_replay.replay)
app.command("worker")(cli_worker.worker)
app.command("serve")(cli_service.serve)
app.add_typer(cli_service.token_app, name="token")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cudaops {version('cudaops')}")
        raise typer.Exit()


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@app.command()
def run(
    source: SourceArgument,
    argv: ArgvArgument = None,
    kernel: KernelOption = None,
    executor: ExecutorOption = None,
    optimizer: OptimizerOption = "auto",
    model: ModelOption = None,
    strategy: StrategyOption = "greedy",
    beam_width: WidthOption = 4,
    beam_rounds: RoundsOption = 3,
    max_iterations: IterationsOption = 3,
    max_cost: CostOption = None,
    max_tokens: TokensOption = None,
    max_trials: TrialsOption = 10,
    budget_minutes: MinutesOption = None,
    min_speedup: SpeedupOption = 1.2,
    arch: ArchOption = None,
    device: DeviceOption = None,
    seed: SeedOption = None,
    timeout: TimeoutOption = 120.0,
    clock_control: ClockOption = "none",
    allow_precision: PrecisionOption = None,
    allow_libraries: LibrariesOption = False,
    review: ReviewOption = False,
    trust_source: TrustOption = False,
    no_memory: NoMemoryOption = False,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Profile, diagnose, rewrite and verify the kernel that matters in FILE.cu."""
    settings, path = load_settings(), source_file(source)
    options = run_options(
        path,
        new_folder(out, settings.runs, path, kernel),
        _place(executor or settings.executor, device, arch),
        argv=tuple(argv or ()),
        kernel=kernel,
        proposing=choose(optimizer, model, settings)._replace(
            search=SearchOptions(strategy=strategy, width=beam_width, rounds=beam_rounds),
            max_cost_usd=max_cost,
            max_tokens=max_tokens,
            max_trials=max_trials,
            budget_minutes=budget_minutes,
            use_memory=not no_memory,
        ),
        max_iterations=max_iterations,
        timeout_s=timeout,
        ncu_clock_control=clock_control,
        policy=Policy(
            min_speedup=min_speedup,
            seed=seed,
            allow_precision=allow_precision,
            allow_libraries=allow_libraries,
            review=review,
        ),
        trust_source=trust_source,
    )
    _run(options, settings, as_json)


def _run(options: RunOptions, settings: Settings, as_json: bool) -> None:
    from cudaops.graph import run as graph

    with _live(Path(options.out)) as progress:
        record = graph.start(options, progress, settings, asking(progress))
    _finish(record, as_json)


@app.command()
def resume(
    run: RunArgument = "latest",
    accept: Annotated[
        bool | None, typer.Option("--yes/--no", help="Answer the review that the run waits for.")
    ] = None,
    note: Annotated[str, typer.Option(help="Why, in your words; kept with the answer.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Go on with a run that was killed or waits for a person; no finished stage runs twice."""
    settings = load_settings()
    folder = find_folder(run, settings.runs)
    from cudaops.graph import run as graph

    with _live(folder) as progress:
        record = graph.resume(folder, progress, settings, answering(accept, note, progress))
    _finish(record, as_json)


@app.command()
def profile(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The program, or what ncu has written."),
    ] = None,
    argv: ArgvArgument = None,
    kernel: KernelOption = None,
    executor: ExecutorOption = None,
    arch: ArchOption = None,
    device: DeviceOption = None,
    timeout: TimeoutOption = 120.0,
    clock_control: ClockOption = "none",
    trust_source: TrustOption = False,
    report: Annotated[
        Path | None,
        typer.Option("--from", help="ncu's report (.ncu-rep) or CSV page, no GPU needed."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what limits the kernel, and stop there; also from what ncu has measured."""
    path = source_file(one_of(source, report))
    if report is not None or path.suffix in REPORT_SUFFIXES:
        _print_profile(profile_of_report(path, kernel, device), as_json)
        return
    settings = load_settings()
    options = run_options(
        path,
        new_folder(None, settings.runs, path, kernel),
        _place(executor or settings.executor, device, arch),
        argv=tuple(argv or ()),
        kernel=kernel,
        timeout_s=timeout,
        ncu_clock_control=clock_control,
        trust_source=trust_source,
    )
    from cudaops.graph import run as graph

    with _live(None) as progress:
        summary = graph.profile_only(options, progress, settings)
    _print_profile(summary, as_json)


@app.command()
def report(
    run: RunArgument = "latest",
    as_html: HtmlOption = False,
    out: HtmlOutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write report.md again from run.json, and print the summary; or one HTML file."""
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
    _print(run_json.dumps(record) if as_json else terminal.run_summary(seen_from_here(record)))


@app.command()
def verify(
    baseline: Annotated[Path, typer.Argument(metavar="BASE.cu", help="The program to match.")],
    candidate: Annotated[
        Path, typer.Argument(metavar="CAND.cu", help="The rewrite of it to judge.")
    ],
    argv: ArgvArgument = None,
    kernel: KernelOption = None,
    executor: ExecutorOption = None,
    min_speedup: SpeedupOption = 1.2,
    arch: ArchOption = None,
    device: DeviceOption = None,
    seed: SeedOption = None,
    timeout: TimeoutOption = 120.0,
    allow_precision: PrecisionOption = None,
    allow_libraries: LibrariesOption = False,
    trust_source: TrustOption = False,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge CAND.cu against BASE.cu: same function, same precision, faster."""
    settings = load_settings()
    path, rewrite = source_file(baseline), source_file(candidate)
    folder = new_folder(out, settings.runs, path, kernel)
    options = run_options(
        path,
        folder,
        _place(executor or settings.executor, device, arch),
        argv=tuple(argv or ()),
        kernel=kernel,
        timeout_s=timeout,
        policy=Policy(
            min_speedup=min_speedup,
            seed=seed,
            allow_precision=allow_precision,
            allow_libraries=allow_libraries,
        ),
        trust_source=trust_source,
    )
    from cudaops.graph import run as graph

    with _live(None) as progress:
        judged = graph.verify_files(path, rewrite, options, progress, settings)
    _finish(judged, as_json)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine can do, rung by rung, and the remedy for what it cannot."""
    from cudaops import doctor as checks

    report_of_rungs = checks.examine(load_settings())
    _print(report_of_rungs.model_dump_json(indent=2) if as_json else checks.table(report_of_rungs))
    if not report_of_rungs.ready:
        raise typer.Exit(EXIT_ENVIRONMENT)


def _place(executor: ExecutorChoice, device: str | None, arch: str | None) -> Target:
    """Where to run; says why a GPU that is there is not used."""
    where = place(executor, device, arch)
    if where.notice is not None:
        typer.echo(f"cudaops: {where.notice}; going on with the processor", err=True)
    return where


@contextmanager
def _live(folder: Path | None) -> Iterator[Progress]:
    """Progress on stderr; Ctrl-C and a review say how to go on with the run in `folder`."""
    try:
        with Progress(_console(stderr=True)) as progress:
            yield progress
    except KeyboardInterrupt:
        if folder is None or not folder.is_dir():
            raise
        typer.echo(f"cudaops: interrupted; go on with: python -m cudaops resume {folder}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except AwaitsReview as waiting:
        typer.echo(how_to_answer(waiting.request, folder or Path()), err=True)
        raise typer.Exit(EXIT_WAITING) from None


def _finish(record: RunRecord, as_json: bool) -> None:
    _print(run_json.dumps(record) if as_json else terminal.run_summary(seen_from_here(record)))
    raise typer.Exit(EXIT_BY_OUTCOME[record.outcome])


def _print_profile(summary: ProfileSummary, as_json: bool) -> None:
    _print(
        summary.model_dump_json(indent=2) if as_json else Group(*terminal.profile_parts(summary))
    )


def _print(what: RenderableType) -> None:
    """Text as it is; the rest set for the terminal, or 100 columns wide without one."""
    console = _console(stderr=False)
    if isinstance(what, str):
        typer.echo(what.rstrip("\n"))
    elif console.is_terminal:
        console.print(what, crop=False)
    else:
        with console.capture() as capture:
            console.print(what, crop=False)
        typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else 100)
