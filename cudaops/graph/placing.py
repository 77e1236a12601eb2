"""From what was asked for to RunOptions: where to run, who proposes, where to write.

What the command line, the Python API and the service have in common. Loads nothing heavy.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from cudaops.domain.judgement import Policy
from cudaops.domain.run import ClockControl, ExecutorChoice, RunOptions
from cudaops.domain.search import SearchOptions
from cudaops.errors import InputError
from cudaops.settings import Settings

OptimizerChoice = Literal["auto", "recipes", "llm"]
ExecutorName = Literal["cpu", "cuda", "remote"]
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"

REMOTE_NOTE = "state/remote.json"
"""In a run folder: which job of a service it is of."""

NO_MODEL = (
    "no model is asked: neither NVIDIA_API_KEY nor --model is there; recipes propose "
    "(docs/language-models.md)"
)
"""What `auto` says where it finds no model."""


class Target(NamedTuple):
    """Where kernels run, whose time it is, and what nvcc builds for."""

    executor: ExecutorName
    device: str
    """Empty on `cuda` and `remote`: the GPU that is there."""
    sm_arch: str
    """Empty on `cuda` and `remote`: what that GPU runs."""
    notice: str | None = None
    """Why a GPU that is there is not used."""


def place(executor: ExecutorChoice, device: str | None, sm_arch: str | None) -> Target:
    """Where to run, from what was given; `auto` takes a GPU where one can be seen.

    Raises InputError: unknown device or architecture, or a device named for the GPU that is there.
    """
    if executor == "remote":
        return Target("remote", device or "", _checked_arch(sm_arch) or "")
    notice = None
    if executor == "auto":
        notice = _why_not_cuda() if device is None and _sees_gpu() else None
        executor = "cuda" if device is None and _sees_gpu() and notice is None else "cpu"
    if executor == "cpu":
        return target(device, sm_arch)._replace(notice=notice)
    if device is not None:
        raise InputError(
            "device names whose time is modelled on the cpu executor; on cuda it is the GPU's own"
        )
    return Target("cuda", "", _checked_arch(sm_arch) or "")


def _sees_gpu() -> bool:
    """Whether this machine has an NVIDIA driver with a device. Opens nothing."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def _why_not_cuda() -> str | None:
    """What the cuda executor lacks beside the GPU; None where it has all it needs."""
    from cudaops.executors.cuda.toolchain import find_nvcc

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
        raise InputError(f"arch {sm_arch!r}: an nvcc target looks like sm_86")
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
        raise InputError(f"arch {chosen} does not run on {row.name}, which is {row.sm_arch}")
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
            raise InputError(f"out {out} is not empty; name a new folder")
        return out.resolve()
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", kernel or source.stem).strip(".") or "kernel"
    stamp = datetime.now(UTC).strftime(_TIME_FORMAT)
    base = (runs / name).resolve()
    candidates = [base / stamp, *(base / f"{stamp}-{n}" for n in range(2, 100))]
    return next(folder for folder in candidates if not folder.exists())


class Proposing(NamedTuple):
    """Who proposes, and within which limits."""

    optimizer: OptimizerChoice = "recipes"
    """`auto`: a service will choose."""
    model: str | None = None
    search: SearchOptions = SearchOptions()
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_trials: int = 10
    budget_minutes: float | None = None
    use_memory: bool = True
    no_model: str | None = None
    """Why recipes alone propose although nobody declined a model."""


def choose(
    optimizer: OptimizerChoice,
    model: str | None,
    settings: Settings,
    executor: ExecutorName = "cpu",
) -> Proposing:
    """The optimizer asked for. `auto`: the model where one was named or NVIDIA's can be reached; on
    `remote` it is the service that knows.

    A model that turns out to be out of reach is no error: the run says so and recipes propose.
    Raises InputError for a name that cannot be a model's, or one given with `recipes`.
    """
    if optimizer == "recipes":
        if model is not None:
            raise InputError("a model names who proposes, and the optimizer recipes asks nobody")
        return Proposing()
    if executor == "remote":
        return Proposing(optimizer, model)
    reachable = settings.nvidia_api_key or settings.nvidia_base_url
    named = model or settings.model
    if optimizer == "auto" and named is None and not reachable:
        return Proposing(no_model=NO_MODEL)
    from cudaops.models.names import DEFAULT_MODEL, parse_model

    return Proposing("llm", parse_model(named or DEFAULT_MODEL).text)


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
    working_folder: Path | None = None,
) -> RunOptions:
    """The record of what was asked for. `working_folder`: where the program runs; None: here."""
    proposing = proposing or Proposing()
    return RunOptions(
        source=str(source),
        argv=argv,
        working_folder=str(working_folder or Path.cwd()),
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
