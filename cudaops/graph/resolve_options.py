"""From what was asked for to RunOptions: where to run, who proposes, where to write.

What the command line, the Python API and the service have in common. Loads nothing heavy.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from cudaops.domain.base import Record
from cudaops.domain.judgement import Policy
from cudaops.domain.options import (
    BeamOptions,
    CompilerOptions,
    ExecutorChoice,
    InterpreterOptions,
    JudgeOptions,
    ModelOptions,
    NcuOptions,
    OptimizerChoice,
    OptimizerOptions,
    ProjectOptions,
    ReferenceOptions,
    ResolvedExecutor,
    StrategyOptions,
    arch_problem,
)
from cudaops.domain.run import RunOptions
from cudaops.domain.search import SearchOptions
from cudaops.errors import InputError
from cudaops.settings import Settings

_TIME_FORMAT = "%Y%m%dT%H%M%SZ"

REMOTE_NOTE = "state/remote.json"
"""In a run folder: which job of a service it is of."""

NO_MODEL = (
    "no language model: neither NVIDIA_API_KEY nor --model is set; recipes propose "
    "(docs/language-models.md)"
)
"""What `auto` says where it finds no model."""


class Target(NamedTuple):
    """Where kernels run, whose time it is, and what nvcc builds for."""

    executor: ResolvedExecutor
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
    if sm_arch is not None and (problem := arch_problem(sm_arch)) is not None:
        raise InputError(problem)
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
    """The absolute path of a program; of a folder with one .cu that one; of a bare name that stands
    in `examples/` alone the one there. Raises InputError where there is no such file."""
    if not path.exists():
        example = "examples" / path
        if path.name != str(path) or not example.is_file():
            raise InputError(f"{path}: no such file")
        path = example
    if path.is_dir():
        found = sorted(path.glob("*.cu"))
        if len(found) != 1:
            names = ", ".join(one.name for one in found[:10]) or "no .cu file"
            raise InputError(f"{path} holds {names}; name the .cu file")
        (path,) = found
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
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", kernel or source.stem)[:100].strip(".") or "kernel"
    stamp = datetime.now(UTC).strftime(_TIME_FORMAT)
    base = (runs / name).resolve()
    candidates = [base / stamp, *(base / f"{stamp}-{n}" for n in range(2, 100))]
    return next(folder for folder in candidates if not folder.exists())


class Proposer(NamedTuple):
    """Who proposes."""

    optimizer: OptimizerChoice = "recipes"
    """`auto`: a service will choose."""
    model: str | None = None
    no_model: str | None = None
    """Why recipes alone propose although nobody declined a model."""


def choose(
    optimizer: OptimizerChoice,
    model: str | None,
    settings: Settings,
    executor: ResolvedExecutor = "cpu",
) -> Proposer:
    """The optimizer asked for. `auto`: the model where one was named or NVIDIA's can be reached; on
    `remote` it is the service that knows.

    A model that turns out to be out of reach is no error: the run says so and recipes propose.
    Raises InputError for a name that cannot be a model's, or one given with `recipes`.
    """
    if optimizer == "recipes":
        if model is not None:
            raise InputError("--model needs --optimizer auto or llm; recipes ask no model")
        return Proposer()
    if executor == "remote":
        return Proposer(optimizer, model)
    reachable = settings.nvidia_api_key or settings.nvidia_base_url
    named = model or settings.model
    if optimizer == "auto" and named is None and not reachable:
        return Proposer(no_model=NO_MODEL)
    from cudaops.models.names import DEFAULT_MODEL, parse_model

    return Proposer("llm", parse_model(named or DEFAULT_MODEL).text)


def resolve(
    options: Record,
    source: Path,
    out: Path,
    where: Target,
    settings: Settings,
    *,
    proposer: Proposer | None = None,
    **fixed: Any,
) -> RunOptions:
    """What was asked for, with everything chosen that was left to us.

    `proposer`: who proposes, where that is not for the options to say. `fixed`: fields of
    RunOptions that are not the user's to choose here.
    """
    fields = {name: value for name, value in options if name in KEPT}
    if isinstance(options, CompilerOptions) and options.nvcc is not None:
        _require_single(fields, where)
    if isinstance(options, ProjectOptions):
        fields |= _project(options, fields, where)
    if isinstance(options, InterpreterOptions):
        fields |= _python(options, source, fields, where)
    if "policy" not in fixed:
        parts = [part for part in Policy.__bases__ if isinstance(options, part)]
        names = {name for part in parts for name in part.model_fields}  # type: ignore[attr-defined]
        fields["policy"] = Policy(**{name: getattr(options, name) for name in names})
    model = options.model if isinstance(options, ModelOptions) else None
    if isinstance(options, OptimizerOptions):
        proposer = proposer or choose(options.optimizer, model, settings, where.executor)
    search = SearchOptions()
    if isinstance(options, BeamOptions):
        search = SearchOptions(width=options.beam_width, rounds=options.beam_rounds)
    if isinstance(options, StrategyOptions):
        search = search.model_copy(update={"strategy": options.strategy})
    if isinstance(options, NcuOptions):
        fields["ncu_clock_control"] = options.clock_control
        fields["ncu_every_metric"] = options.every_metric
    fields |= {**(proposer or Proposer())._asdict(), "search": search, **fixed}
    return run_options(source, out, where, **fields)


def _require_single(fields: Mapping[str, Any], where: Target) -> None:
    """Of `--nvcc`: that FILE is a program by itself, on this machine."""
    if where.executor == "remote":
        raise InputError("--nvcc needs a local executor; a service has none of your headers")
    if fields.get("build_command") or fields.get("run_command"):
        raise InputError("--nvcc is for a single FILE; --build is for a project")
    if fields.get("kernel_source"):
        raise InputError("--nvcc is for programs; one around --source is compiled by cudaops")


def _project(options: ProjectOptions, fields: Mapping[str, Any], where: Target) -> dict[str, Any]:
    """What `--run` says, as the program and its arguments."""
    if options.build_command is not None and where.executor == "remote":
        raise InputError("--build needs a local executor; a service has no copy of your project")
    if options.run_command is None:
        return {}
    if where.executor == "remote":
        raise InputError("--run needs a local executor; a service does not have your program")
    try:
        program, *arguments = shlex.split(options.run_command)
    except ValueError as problem:
        raise InputError(f"--run {options.run_command!r}: {problem}") from None
    if arguments and (fields["argv"] or fields["argument_lines"]):
        raise InputError("give the program's arguments with --run or otherwise, not both")
    return {
        "run_command": shlex.join([program]),
        **({"argv": tuple(arguments)} if arguments else {}),
    }


def _python(
    options: InterpreterOptions, source: Path, fields: Mapping[str, Any], where: Target
) -> dict[str, Any]:
    """What FILE.py is, and by which interpreter."""
    if isinstance(options, ReferenceOptions) and options.kernel_source is not None:
        return _reference(options, options.kernel_source, source, fields, where)
    if source.suffix == ".py":
        return _alone(options, source, fields, where)
    if options.python is not None:
        raise InputError(f"--python is for programs in Python; {source.name} is not a Python file")
    return {}


def _alone(
    options: InterpreterOptions, source: Path, fields: Mapping[str, Any], where: Target
) -> dict[str, Any]:
    """Of a program in Python that has its kernels in it, or compiles them itself."""
    from cudaops.triton.source import is_triton

    if fields.get("run_command") is not None:
        raise InputError(
            f"{source.name} is Python: let it read its kernels from a file, as in "
            'RawKernel(open("kernel.cu").read(), ...), and name that file with --run '
            f'"python3 {source.name}"'
        )
    if not is_triton(source.read_text("utf-8", "replace")):
        if not isinstance(options, ReferenceOptions):
            raise InputError(
                f"{source.name} is Python without @triton.jit functions, which this command does "
                "not take; where it compiles its CUDA by torch.utils.cpp_extension, `cudaops run` "
                "does, on a GPU"
            )
        _require_own_compiler(source, fields, where)
        return _interpreter(options)
    if where.executor == "remote":
        raise InputError(
            "Triton programs need a local executor; a service does not run your Python"
        )
    if fields.get("build_command") is not None or fields.get("nvcc") is not None:
        raise InputError("--build and --nvcc are for CUDA C++; Triton compiles its kernels itself")
    return {"is_triton": True, **_interpreter(options)}


def _interpreter(options: InterpreterOptions) -> dict[str, Any]:
    if options.python is not None and "/" in options.python:
        return {"python": str(Path(options.python).absolute())}
    return {}


def _reference(
    options: ReferenceOptions,
    kernels: str,
    source: Path,
    fields: Mapping[str, Any],
    where: Target,
) -> dict[str, Any]:
    """What `--source` says, absolute; and that nothing was asked that a problem has not."""
    if source.suffix != ".py":
        raise InputError(
            f"--source names the kernels for a reference in Python, and {source.name} is none"
        )
    if where.executor == "remote":
        raise InputError("--source needs a local executor; a service does not run your Python")
    if fields["build_command"] is not None:
        raise InputError("--build is for projects; a problem's program is written by cudaops")
    if kernels.endswith(".py"):
        _require_own_compiler(source, fields, where, source_file(Path(kernels)))
        return {"kernel_source": str(source_file(Path(kernels))), **_interpreter(options)}
    if fields["argv"] or fields["argument_lines"] or fields["odd_sizes"]:
        raise InputError(
            "a problem has no arguments: its sizes are those that its Python draws; leave --args, "
            "--odd-sizes and what follows -- out"
        )
    return {"kernel_source": str(source_file(Path(kernels))), **_interpreter(options)}


def _require_own_compiler(
    source: Path, fields: Mapping[str, Any], where: Target, *also: Path
) -> None:
    """Of a program in Python without kernels in a file: that it may compile them itself here.
    `also`: another file of it."""
    if fields["build_command"] is not None:
        raise InputError(
            f"{source.name} is Python; with --build name the CUDA file that is compiled, and start "
            f'the program by --run "python3 {source.name}"'
        )
    if where.executor != "cuda" and any(
        "cpp_extension" in path.read_text("utf-8", "replace") for path in (source, *also)
    ):
        raise InputError(
            f"{source.name} compiles its CUDA by torch.utils.cpp_extension, which needs a GPU: "
            "--executor cuda"
        )
    if where.executor != "cuda":
        raise InputError(
            f"{source.name} is Python; name the kernels for it with --source K.cu, have them in it "
            "as @triton.jit functions, or, where it compiles them itself by "
            "torch.utils.cpp_extension, run it on a GPU: --executor cuda"
        )


def run_options(source: Path, out: Path, where: Target, **fields: Any) -> RunOptions:
    """RunOptions of a program and a place. `fields`: the other ones; `working_folder`, where the
    program runs, is this process's where it is left out."""
    return RunOptions(
        source=str(source),
        executor=where.executor,
        device=where.device,
        sm_arch=where.sm_arch,
        out=str(out),
        **{"working_folder": str(Path.cwd()), **fields},
    )


def requested_options(options: RunOptions) -> dict[str, Any]:
    """The way back of `resolve`, by the names of `cudaops.domain.options`: for a service, which
    resolves them itself."""
    policy, search = options.policy, options.search
    return {
        **{name: value for name, value in options if name in KEPT},
        **{name: getattr(policy, name) for name in JudgeOptions.model_fields},
        "device": options.device or None,
        "arch": options.sm_arch or None,
        "optimizer": options.optimizer,
        "strategy": search.strategy,
        "beam_width": search.width,
        "beam_rounds": search.rounds,
    }


KEPT = frozenset(
    name
    for model in RunOptions.__bases__
    for name in model.model_fields  # type: ignore[attr-defined]
)
"""Options that a run keeps as they were asked for."""
