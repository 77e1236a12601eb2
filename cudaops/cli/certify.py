"""`cudaops certify` and `cudaops confirm`: check evidence anywhere, make it again here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudaops.cli.boundary import EXIT_NOTHING_FOUND, console_on
from cudaops.cli.options import with_options
from cudaops.cli.runs import RECORD_NAME, find_folder, load_record
from cudaops.domain.certificate import CERTIFICATE_NAME
from cudaops.domain.options import ExecutorChoice, ExecutorOptions, TrustOptions
from cudaops.domain.run import RunOptions, RunRecord
from cudaops.errors import InputError, PrerequisiteError
from cudaops.graph.resolve_options import place
from cudaops.reports.quantities import one_line
from cudaops.reports.terminal import Progress
from cudaops.settings import Settings, load_settings

if TYPE_CHECKING:
    from cudaops.domain.certificate import Certificate, Confirmation
    from cudaops.graph.confirm import ConfirmationResult

app = typer.Typer(
    help="Check a certificate's signature and content, or show the signing key.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

FAILED = EXIT_NOTHING_FOUND
"""Of `check`: something does not hold. Of `confirm`: drifted or fails."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="certificate.json of a run.")],
    key: Annotated[
        str | None,
        typer.Option(help="Required signer: a PEM file or a fingerprint."),
    ] = None,
) -> None:
    """Check a certificate's signature, consistency and files. Needs no GPU and no compiler."""
    from cudaops.certify.check import KnownKey, check_envelope, first_problem
    from cudaops.certify.envelope import open_envelope
    from cudaops.certify.keys import VARIABLE, named_fingerprint

    wanted = None if key is None else named_fingerprint(key)
    if file.is_dir():
        file = file / CERTIFICATE_NAME
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    envelope = open_envelope(data, str(file))
    settings = load_settings()
    own = _own_fingerprint(settings)
    # Only the default place says whose key it is: the variable may be in a folder's .env.
    whose = f"the key that {VARIABLE} names" if settings.signing_key else "this machine's key"
    known = None if own is None else KnownKey(own, whose)
    items = check_envelope(envelope, file.absolute().parent, wanted=wanted, known=known)
    for item in items:
        typer.echo(one_line(item.line, 4000))
    if first_problem(items) is not None:
        raise typer.Exit(FAILED)


@app.command("key")
def show_key() -> None:
    """Print this machine's public key and its fingerprint; the first use creates the key."""
    from cudaops.certify.keys import NoKey, find_or_make_key, public_pem

    settings = load_settings()
    found = find_or_make_key(settings.signing_key, avoid=(settings.runs,))
    if isinstance(found, NoKey):
        raise PrerequisiteError("there is no key to sign with", found.reason)
    typer.echo(f"fingerprint: {found.fingerprint}")
    typer.echo(public_pem(found.public_key), nl=False)


class ConfirmOptions(ExecutorOptions, TrustOptions):
    """Options of `confirm`; the rest is from the run."""


@with_options
def confirm(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Run folder, run id, latest, or a folder of certified runs."
        ),
    ] = "latest",
    *,
    options: ConfirmOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Only the confirmation as JSON on stdout.")
    ] = False,
) -> None:
    """Judge a certified rewrite again, on this machine and with new secret inputs.

    For a folder of certified runs: judges each, and prints one table."""
    settings = load_settings()
    folder = find_folder(run, settings.runs)
    if not any((folder / name).exists() for name in (CERTIFICATE_NAME, RECORD_NAME)):
        _confirm_all(folder, options, settings, as_json=as_json)
        return
    done, _ = _confirm_one(folder, options, settings)
    if as_json:
        typer.echo(done.confirmation.model_dump_json(indent=2))
    else:
        _print_confirmation(done.confirmation, done.folder)
    if done.confirmation.result != "holds":
        raise typer.Exit(FAILED)


def _confirm_all(
    folder: Path, options: ConfirmOptions, settings: Settings, *, as_json: bool
) -> None:
    """Every certified run below a folder, one after the other; one that is no input for it is a
    row of the table. Raises InputError where there is none."""
    from cudaops.reports.confirmations import ConfirmationRow, counted, table, to_record

    found = [
        path.parent
        for path in sorted(folder.rglob(CERTIFICATE_NAME))
        if "confirmations" not in path.relative_to(folder).parts
    ]
    if not found:
        raise InputError(
            f"{folder} is no run and holds none with a {CERTIFICATE_NAME}; `cudaops run` and "
            "`cudaops verify` write one where they keep a rewrite"
        )
    rows = []
    for number, one in enumerate(found, start=1):
        name = str(one.relative_to(folder))
        typer.echo(f"cudaops: {number} of {len(found)}: {name}", err=True)
        try:
            done, certificate = _confirm_one(one, options, settings)
            rows.append(ConfirmationRow(name, certificate, done.confirmation))
        except InputError as refused:
            rows.append(ConfirmationRow(name, problem=str(refused)))
    if as_json:
        typer.echo(json.dumps([to_record(row) for row in rows], indent=2))
    else:
        console_on(stderr=False).print(table(rows), crop=False)
        typer.echo(counted(rows))
    if any(row.result != "holds" for row in rows):
        raise typer.Exit(FAILED)


def _confirm_one(
    folder: Path, options: ConfirmOptions, settings: Settings
) -> tuple[ConfirmationResult, Certificate]:
    """Raises what `confirm_run` does."""
    from cudaops.graph.certificate import open_certified
    from cudaops.graph.confirm import confirm_run

    certified = open_certified(folder, _own_fingerprint(settings))
    executor = options.executor or settings.executor
    here = _options(certified.certificate, load_record(folder), executor)
    # Never as the folder says: it may be a stranger's.
    here = here.model_copy(update={"trust_source": options.trust_source, "out": str(folder)})
    for notice in certified.notices:
        typer.echo(f"cudaops: {notice}", err=True)
    with Progress(console_on(stderr=True)) as progress:
        return confirm_run(certified, here, progress, settings), certified.certificate


def _own_fingerprint(settings: Settings) -> str | None:
    """Of this machine's key; None where there is none, and none is made for a look."""
    from cudaops.certify.keys import NoKey, find_key

    found = find_key(settings.signing_key)
    return None if isinstance(found, NoKey) else found.fingerprint


def _options(certificate: Certificate, record: RunRecord, executor: ExecutorChoice) -> RunOptions:
    """The run's options, moved to where it is judged now."""
    where = place(executor, None, None)
    if where.notice is not None:
        typer.echo(f"cudaops: {where.notice}; continuing on the CPU", err=True)
    if where.executor == "cpu":
        where = where._replace(device=certificate.device, sm_arch=certificate.sm_arch)
    there = Path(record.options.working_folder)
    if not there.is_dir():
        typer.echo(f"cudaops: {there} is not here; the program runs in this folder", err=True)
        there = Path.cwd()
    return record.options.model_copy(
        update={
            "executor": where.executor,
            "device": where.device,
            "sm_arch": where.sm_arch,
            "working_folder": str(there),
        }
    )


def _print_confirmation(confirmation: Confirmation, folder: Path) -> None:
    typer.echo(f"{confirmation.result}: {confirmation.reason}")
    for anchor in confirmation.anchors:
        word = anchor.result.replace("_", " ")
        typer.echo(f"anchor {anchor.workload}/{anchor.probe}: {word}, {anchor.detail}")
    word = confirmation.speedup.result.replace("_", " ")
    typer.echo(f"speedup: {word}, {confirmation.speedup.detail}")
    typer.echo(f"written: {folder}")
