"""From what a user calls a run to its folder and its record."""

from __future__ import annotations

from pathlib import Path

from cudaops.domain.run import RunRecord
from cudaops.errors import InputError
from cudaops.reports import json as run_json

RECORD_NAME = "run.json"


def seen_from_here(record: RunRecord) -> RunRecord:
    """The record with paths below the working folder as a user would type them."""

    def short(path: str) -> str:
        here = Path.cwd()
        return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path

    shown = record.options.model_copy(
        update={"out": short(record.options.out), "source": short(record.options.source)}
    )
    return record.model_copy(update={"options": shown})


def find_folder(run: str, runs: Path) -> Path:
    """The folder of a run named by its path, its run id, its time stamp, or `latest`.

    Raises InputError where no folder answers to it, or several do.
    """
    given = Path(run)
    if given.name == RECORD_NAME and given.is_file():
        return given.parent.resolve()
    if given.is_dir():
        return given.resolve()
    folders = sorted((f for f in runs.glob("*/*") if f.is_dir()), key=lambda f: (f.name, str(f)))
    if run == "latest":
        if not folders:
            raise InputError(f"there is no run under {runs}; start one: cudaops run FILE.cu")
        return folders[-1].resolve()
    found = [
        f for f in folders if run in (f.name, f"{f.parent.name}/{f.name}") or _run_id(f) == run
    ]
    if not found:
        raise InputError(f"no run {run!r} under {runs}; give its folder, its id or `latest`")
    if len(found) > 1:
        names = ", ".join(f"{f.parent.name}/{f.name}" for f in found)
        raise InputError(f"{run!r} names several runs: {names}")
    return found[0].resolve()


def _run_id(folder: Path) -> str | None:
    try:
        return load_record(folder).run_id
    except InputError:
        return None


def load_record(folder: Path) -> RunRecord:
    """The record of a finished run. Raises InputError where there is none."""
    path = folder / RECORD_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no {RECORD_NAME}: the run has not finished; cudaops resume {folder}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    record = run_json.loads(text, str(path))
    if record.device_row is not None:
        from cudaops.cuda import devices

        devices.register(devices.from_record(record.device_row))
    return record
