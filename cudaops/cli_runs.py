"""From a command line to RunOptions, and from what a user calls a run to its folder."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from cudaops.cli_models import Proposing
from cudaops.domain.judgement import Policy
from cudaops.domain.run import ClockControl, ExecutorChoice, RunOptions, RunRecord
from cudaops.errors import InputError
from cudaops.reports import json as run_json

TrustOption = Annotated[
    bool,
    typer.Option("--trust-source", help="Needed with CUDAOPS_ISOLATION=off: you vouch for it."),
]
RECORD_NAME = "run.json"
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"


ExecutorName = Literal["cpu", "cuda"]


class Target(NamedTuple):
    """Where kernels run, whose time it is, and what nvcc builds for."""

    executor: ExecutorName
    device: str
    """Empty on `cuda`: the GPU that is there."""
    sm_arch: str
    """Empty on `cuda`: what that GPU runs."""
    notice: str | None = None
    """Why a GPU that is there is not used."""


def place(executor: ExecutorChoice, device: str | None, sm_arch: str | None) -> Target:
    """Where to run, from what was given; `auto` takes a GPU where one can be seen.

    Raises InputError: unknown device or architecture, or a device named for the GPU that is there.
    """
    notice = None
    if executor == "auto":
        notice = _why_not_cuda() if device is None and _sees_gpu() else None
        executor = "cuda" if device is None and _sees_gpu() and notice is None else "cpu"
    if executor == "cpu":
        return target(device, sm_arch)._replace(notice=notice)
    if device is not None:
        raise InputError(
            "--device names whose time is modelled on the cpu executor; on cuda it is the GPU's own"
        )
    return Target("cuda", "", _checked_arch(sm_arch) or "")


def _sees_gpu() -> bool:
    """Whether this machine has an NVIDIA driver with a device. Opens nothing."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def _why_not_cuda() -> str | None:
    """What the cuda executor lacks beside the GPU; None where it has all it needs."""
    from cudaops.sandbox.toolchain import find_nvcc

    missing = [
        name
        for name, there in (
            ("nvcc", find_nvcc() is not None),
            ("the cuda extra", find_spec("cuda") is not None and find_spec("cuda.bindings")),
        )
        if not there
    ]
    if not missing:
        return None
    remedy = "python -m pip install 'cudaops[cuda,toolkit]'"
    return f"there is an NVIDIA GPU, but {' and '.join(missing)} is missing: {remedy}"


def _checked_arch(sm_arch: str | None) -> str | None:
    if sm_arch is not None and not re.fullmatch(r"sm_\d{2,3}[af]?", sm_arch):
        raise InputError(f"--arch {sm_arch}: an nvcc target looks like sm_86")
    return sm_arch


def target(device: str | None, sm_arch: str | None) -> Target:
    """Device and architecture from what was given of the two; A10 and sm_86 where neither was.

    Raises InputError: unknown device or architecture, or one newer than the device.
    """
    from cudaops.cuda import devices

    sm_arch = _checked_arch(sm_arch)
    if device is None and sm_arch is None:
        device = "A10"
    row = devices.device(device if device is not None else str(sm_arch))
    chosen = sm_arch or row.sm_arch
    if _number(chosen) > _number(row.sm_arch):
        raise InputError(f"--arch {chosen} does not run on {row.name}, which is {row.sm_arch}")
    return Target("cpu", row.name, chosen)


def _number(sm_arch: str) -> int:
    return int(re.sub(r"\D", "", sm_arch))


def source_file(path: Path) -> Path:
    """The absolute path of a program. Raises InputError where there is no such file."""
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path} is not a file; name the .cu file")
    return path.resolve()


def new_folder(out: Path | None, runs: Path, source: Path, kernel: str | None) -> Path:
    """Where this run will write: `out`, else `runs`/KERNEL/TIME. Nothing is created.

    KERNEL is the file's name where the kernel is still to be chosen.
    Raises InputError where `out` already holds something.
    """
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise InputError(f"--out {out} is not empty; name a new folder")
        return out.resolve()
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", kernel or source.stem).strip(".") or "kernel"
    stamp = datetime.now(UTC).strftime(_TIME_FORMAT)
    base = (runs / name).resolve()
    candidates = [base / stamp, *(base / f"{stamp}-{n}" for n in range(2, 100))]
    return next(folder for folder in candidates if not folder.exists())


def run_options(
    source: Path,
    out: Path,
    where: Target,
    *,
    argv: tuple[str, ...] = (),
    kernel: str | None = None,
    proposing: Proposing | None = None,
    max_iterations: int = 3,
    timeout_s: float = 120.0,
    ncu_clock_control: ClockControl = "none",
    policy: Policy | None = None,
    trust_source: bool = False,
) -> RunOptions:
    """The record of what was asked for."""
    proposing = proposing or Proposing()
    return RunOptions(
        source=str(source),
        argv=argv,
        working_folder=str(Path.cwd()),
        kernel=kernel,
        executor=where.executor,
        device=where.device,
        sm_arch=where.sm_arch,
        max_iterations=max_iterations,
        timeout_seconds=timeout_s,
        ncu_clock_control=ncu_clock_control,
        trust_source=trust_source,
        policy=policy or Policy(),
        out=str(out),
        **proposing._asdict(),
    )


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
