"""What a user may ask of a run: name, type, bounds, default and words of every option, once.

The command line's flags, the Python API's arguments, the fields of the service's requests and of
Studio's input, and the MCP tools' parameters are made of these fields. What is kept as it was asked
for is in the run's RunOptions and Policy by inheritance; the rest is resolved in
`graph/resolve_options.py`. A new option is a field here, and its use where it acts.

Which class it is in says who can ask for it: see the docstrings.
"""

from __future__ import annotations

import functools
import inspect
import re
import shlex
import typing
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from cudaops.domain.base import Record
from cudaops.domain.workload import RunRole
from cudaops.errors import InputError

ExecutorName = Literal["cpu", "cuda"]
"""Where kernels run."""
LocalExecutor = Literal["auto", ExecutorName]
"""Executors of one machine; `auto` is the GPU where there is one."""
ExecutorChoice = Literal[LocalExecutor, "remote"]
"""What a user may ask for; `remote` is the service that CUDAOPS_SERVER names."""
ResolvedExecutor = Literal[ExecutorName, "remote"]
"""What it comes to; `remote` is not known before a service has chosen."""
OptimizerChoice = Literal["auto", "recipes", "llm"]
Strategy = Literal["greedy", "branch", "beam"]
"""greedy: one candidate at a time, each judged. branch: several at once, the fastest is judged.
beam: several rounds of that, the best of each round bred further."""
ClockControl = Literal["none", "base"]
"""What ncu does with the clocks. `none`: they stay as they are, so that the time is comparable to
one without ncu. `base`: locked to base while it looks, so that two profiles are comparable."""
Precision = Literal["tf32", "fp16", "bf16"]
"""Arithmetic less exact than the baseline's that a user may allow."""

WarmUps = Literal["auto", "count"]
"""auto: launches outside of what the program times do not count, where it times some."""

MOST_RUNS = 8
"""Of one program behind one job. Chosen: each is captured, and judged on by itself."""
MOST_WEIGHT = 1e6
_RUN = re.compile(r"\s*(?P<role>judged|timed|both)(?:\*(?P<weight>[0-9]+(?:\.[0-9]+)?))?:")
_NO_NUL = r"^[^\x00]*$"
_ARCH = r"sm_[0-9]{2,3}[af]?"


def arch_problem(sm_arch: str) -> str | None:
    """Why this names no nvcc target, in one line; None where it may."""
    if re.fullmatch(_ARCH, sm_arch) is None:
        return f"arch {sm_arch!r}: an nvcc target looks like sm_86"
    return None


def _wrong(problem: str) -> PydanticCustomError:
    return PydanticCustomError("option", "{problem}", {"problem": problem})


def _checked_arch(sm_arch: str) -> str:
    if (problem := arch_problem(sm_arch)) is not None:
        raise _wrong(problem)
    return sm_arch


class ProgramRun(Record):
    """One way to run the author's program, and what it is for."""

    argv: tuple[str, ...] = ()
    """Without the program's name."""
    role: RunRole = "both"
    weight: float = 1.0
    """Of its time among the timed runs; 0 of one that is judged only."""


def program_run(line: str) -> ProgramRun:
    """What a line of arguments says. Raises ValueError where it cannot be read."""
    found = _RUN.match(line)
    role, weight = (found["role"], float(found["weight"] or 1)) if found else ("both", 1.0)
    if not 0 < weight <= MOST_WEIGHT:
        raise ValueError(f"a weight is above 0 and at most {MOST_WEIGHT:g}")
    if role == "judged":
        weight = 0.0
    argv = shlex.split(line[found.end() :] if found else line)
    return ProgramRun(argv=tuple(argv), role=cast(RunRole, role), weight=weight)


def _checked_line(line: str) -> str:
    try:
        program_run(line)
    except ValueError as problem:
        raise _wrong(f"args {line!r}: {problem}") from None
    return line


def _checked_command(line: str) -> str:
    try:
        words = shlex.split(line)
    except ValueError as problem:
        raise _wrong(f"run {line!r}: {problem}") from None
    if not words or "=" in words[0]:
        raise _wrong(f"run {line!r}: must begin with the program's path in the project")
    return line


class Flag(NamedTuple):
    """What an option is called on the command line, where that is not `--` and its name."""

    name: str


class Positional(NamedTuple):
    """An option that the command line takes without a flag."""

    metavar: str


WHOLE = BeforeValidator(lambda v: int(v) if isinstance(v, float) and v.is_integer() else v)
"""JSON Schema takes 3.0 for an integer (2020-12, validation, section 6.1.1); so do we."""
Argument = Annotated[str, StringConstraints(max_length=4096, pattern=_NO_NUL)]
ArgumentLine = Annotated[
    str, StringConstraints(max_length=16_384, pattern=_NO_NUL), AfterValidator(_checked_line)
]
KernelName = Annotated[
    str, StringConstraints(min_length=1, max_length=2000, pattern=r"^[^\x00-\x1f\x7f]*$")
]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=_NO_NUL)]
DeviceName = Annotated[str, StringConstraints(max_length=100, pattern=_NO_NUL)]
CompilerLine = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=_NO_NUL)]
BuildCommand = Annotated[
    str, StringConstraints(min_length=1, max_length=4096, pattern=_NO_NUL, strip_whitespace=True)
]
RunCommand = Annotated[
    str,
    StringConstraints(max_length=16_384, pattern=_NO_NUL),
    AfterValidator(_checked_command),
]
Arch = Annotated[
    str, AfterValidator(_checked_arch), Field(json_schema_extra={"pattern": f"^{_ARCH}$"})
]
Bar = Annotated[float, Field(ge=1, le=1000)]
TimeoutSeconds = Annotated[float, Field(ge=1, le=86_400)]
Dollars = Annotated[float, Field(ge=0, le=1000)]


class TimeoutOptions(Record):
    """Of whatever runs a program, for everybody; kept in RunOptions."""

    timeout_seconds: Annotated[TimeoutSeconds, Flag("--timeout")] = 120.0
    """Seconds for one run of the program or a candidate; a longer program is captured up to
    there."""


_ARGUMENTS_TWICE: dict[str, Any] = {
    "required": ["argv", "argument_lines"],
    "properties": {"argv": {"minItems": 1}, "argument_lines": {"minItems": 1}},
}
"""What `KernelOptions` refuses, as JSON Schema says it."""


class KernelOptions(Record):
    """Of whatever opens a program, for everybody; kept in RunOptions."""

    model_config = ConfigDict(json_schema_extra={"not": _ARGUMENTS_TWICE})

    argv: Annotated[tuple[Argument, ...], Field(max_length=256), Positional("-- PROGRAM ARGS")] = ()
    """Arguments for the program itself."""
    argument_lines: Annotated[
        tuple[ArgumentLine, ...], Field(max_length=MOST_RUNS), Flag("--args")
    ] = ()
    """Arguments of one run of the program, in place of PROGRAM ARGS; repeat it for several runs.
    Prefixes: `judged: 37 1` checks results only, `timed: 4096 100` measures time only, `timed*3:`
    with weight 3; no prefix: both. `37 < in.txt` redirects stdin. On the command line @FILE reads
    such lines from a file."""
    odd_sizes: Annotated[bool, Flag("--odd-sizes")] = False
    """Also check results on runs whose size arguments are replaced by primes."""
    warm_ups: Annotated[WarmUps, Flag("--warm-ups")] = "auto"
    """Launches outside of the program's own timing events: `auto` ignores them if there are such
    events, `count` counts them."""
    kernel: KernelName | None = None
    """Kernel to optimize (default: the one with most time)."""
    exit_code: Annotated[int, Field(ge=0, le=255), WHOLE] = 0
    """Exit code of the program on success."""

    @property
    def program_runs(self) -> tuple[ProgramRun, ...]:
        """The runs of the program that belong to the job, as they were given."""
        lines = tuple(program_run(line) for line in self.argument_lines)
        return lines or (ProgramRun(argv=self.argv),)

    @property
    def program_words(self) -> tuple[str, ...]:
        """Every argument of every run."""
        return tuple(word for run in self.program_runs for word in run.argv)

    @model_validator(mode="after")
    def _runs(self) -> KernelOptions:
        if self.argv and self.argument_lines:
            raise _wrong("args: give the program's arguments as lines or one by one, not both")
        if not any(run.role != "judged" for run in self.program_runs):
            raise _wrong("args: every run is judged only; let one be timed, or both")
        if not any(run.role != "timed" for run in self.program_runs):
            raise _wrong("args: every run is timed only; let one be judged, or both")
        return self


class ProgramOptions(KernelOptions, TimeoutOptions):
    """Of every command, for everybody; kept in RunOptions."""


class ExecutorOptions(Record):
    """Of whatever runs a kernel, for everybody; resolved."""

    executor: ExecutorChoice | None = None
    """Where kernels run (default: the GPU if there is one)."""


class PlaceOptions(ExecutorOptions):
    """Of every command, for everybody; resolved to an executor, a device and nvcc's target."""

    arch: Arch | None = None
    """nvcc target (default: the device's)."""
    device: DeviceName | None = None
    """Device whose time is modelled (default: A10)."""


class BarOptions(Record):
    """Where something is judged, for everybody; kept in the Policy."""

    min_speedup: Bar = 1.2
    """Speedup that a rewrite must reach (baseline time over candidate time)."""


class JudgeOptions(BarOptions):
    """Where something is judged, for everybody but a host's model, which may be the one that
    writes the candidate; kept in the Policy."""

    seed: Annotated[int, Field(ge=0, lt=2**62), WHOLE] | None = None
    """Seed of the secret inputs, to repeat a run (default: random)."""
    allow_precision: Precision | None = None
    """Reduced precision that candidates may use; the certificate names it."""
    allow_libraries: Annotated[bool, Flag("--allow-libraries")] = False
    """Candidates may include CUB, libcu++, and CUTLASS with CuTe (found by CUTLASS_PATH, its folder
    or that of its headers, or in the package `nvidia-cutlass`). To compile such a `best.cu`, pass
    nvcc that `-I` and `--expt-relaxed-constexpr`."""
    allow_ptx: Annotated[bool, Flag("--allow-ptx")] = False
    """Candidates may hold inline PTX that computes, loads or stores."""
    allow_reassociation: Annotated[bool, Flag("--allow-reassociation")] = False
    """Offer recipes that compute another formula, equal but for rounding (Winograd's convolution).
    The gates bound the rounding error as for any candidate."""


class OptimizerOptions(Record):
    """Of the main job, for everybody; resolved."""

    optimizer: OptimizerChoice = "auto"
    """Source of rewrites: `auto` is the model if one can be reached, recipes otherwise."""


class BeamOptions(Record):
    """Of the main job, for everybody; kept in SearchOptions as `width` and `rounds`."""

    beam_width: Annotated[int, Field(ge=1, le=16), WHOLE] = 4
    """Candidates per round (branch, beam)."""
    beam_rounds: Annotated[int, Field(ge=1, le=20), WHOLE] = 3
    """Maximum rounds of a beam."""


class StrategyOptions(Record):
    """Of the main job, for everybody but Studio, where every strategy is a graph of its own; kept
    in SearchOptions."""

    strategy: Strategy = "greedy"
    """One candidate after another, several in parallel, or several in rounds."""


class LimitOptions(Record):
    """Of the main job, for everybody; kept in RunOptions."""

    max_iterations: Annotated[int, Field(ge=1, le=50), WHOLE] = 3
    """Maximum number of judged candidates."""
    max_cost_usd: Annotated[Dollars | None, Flag("--max-cost")] = None
    """Budget for model calls in US dollars."""
    max_tokens: Annotated[int, Field(ge=1, le=100_000_000), WHOLE] | None = None
    """Budget for model calls in tokens, input plus output."""
    max_trials: Annotated[int, Field(ge=1, le=1000), WHOLE] = 10
    """Maximum configurations of one rewrite that the tuner measures; the search over
    transformations measures ten times as many sequences."""
    budget_minutes: Annotated[float, Field(ge=0, le=1440)] | None = None
    """Time budget in minutes; the best candidate so far is kept."""


class TrustOptions(Record):
    """Of every command on the user's own machine; kept in RunOptions."""

    trust_source: Annotated[bool, Flag("--trust-source")] = False
    """Confirm that the source is trusted; required with CUDAOPS_ISOLATION=off."""


class ProjectOptions(Record):
    """Of the main job and `profile` on the user's own machine, whose folder is the project's; kept
    in RunOptions."""

    build_command: Annotated[BuildCommand | None, Flag("--build")] = None
    """Shell command that builds the project in this folder: `make -j`. Runs in a copy."""
    run_command: Annotated[RunCommand | None, Flag("--run")] = None
    """Program that the build makes, with its arguments: `./app 100`. Without `--build`: a program
    that launches the kernels of FILE through the CUDA driver API: `python3 app.py`."""


class CompilerOptions(Record):
    """Of the main job, `profile` and `verify` on the user's own machine, whose folders of headers
    are there; kept in RunOptions."""

    nvcc: Annotated[CompilerLine | None, Flag("--nvcc")] = None
    """How you compile FILE: nvcc's flags (`-I common/inc -DN=4096 -std=c++20 -lcublas`), or the
    whole line."""


class InterpreterOptions(Record):
    """Of every command on the user's own machine, where FILE may be Python; kept in RunOptions."""

    python: FileName | None = None
    """Interpreter that runs FILE.py (default: that of cudaops)."""


class ReferenceOptions(InterpreterOptions):
    """Of the main job on the user's own machine, where Python says what is right; kept in
    RunOptions."""

    kernel_source: Annotated[FileName | None, Flag("--source")] = None
    """CUDA file that implements FILE.py, with `@launch` comments that say how its kernels are
    launched; or KernelBench's MODEL_NEW.py."""


class NcuOptions(Record):
    """Where ncu looks, on the user's own machine; kept in RunOptions as `ncu_clock_control` and
    `ncu_every_metric`."""

    clock_control: ClockControl = "none"
    """ncu only: whether it locks the clocks while it profiles."""
    every_metric: Annotated[bool, Flag("--every-metric")] = False
    """ncu only: collect the full set as well, 8 s per kernel on an H200 (2026-11-30); otherwise the
    metrics that decide."""


class MemoryOptions(Record):
    """Of the main job on the user's own machine; kept in RunOptions."""

    use_memory: Annotated[bool, Flag("--use-memory/--no-memory")] = True
    """Read and extend the results of earlier runs."""
    digest: Annotated[bool, Flag("--digest")] = False
    """Ask the model, once a verdict, for a digest of the passages with citations."""


class ModelOptions(Record):
    """Of the main job where its user has the key; resolved with `optimizer`."""

    model: str | None = None
    """Model that proposes: nvidia/..., openai:..., scripted:FILE, and more."""


class ReviewOptions(Record):
    """Of the main job where a person is there to be asked; kept in the Policy."""

    review: Annotated[bool, Flag("--review")] = False
    """Show patch and evidence, and ask before accepting."""


class ProfileOptions(
    ProgramOptions,
    CompilerOptions,
    ProjectOptions,
    InterpreterOptions,
    PlaceOptions,
    NcuOptions,
    TrustOptions,
):
    """All that `profile` may be asked for."""


class VerifyOptions(
    ProgramOptions, CompilerOptions, InterpreterOptions, PlaceOptions, JudgeOptions, TrustOptions
):
    """All that `verify` may be asked for."""


class OptimizeOptions(
    ProgramOptions, CompilerOptions, ProjectOptions, ReferenceOptions, PlaceOptions,
    OptimizerOptions, ModelOptions, StrategyOptions, BeamOptions, LimitOptions, JudgeOptions,
    NcuOptions, TrustOptions, MemoryOptions,
):  # fmt: skip
    """All that the main job may be asked for, but a person's review."""


class BatchOptions(
    TimeoutOptions, PlaceOptions, OptimizerOptions, StrategyOptions, BeamOptions, LimitOptions,
    JudgeOptions,
):  # fmt: skip
    """What the programs of a batch share: of the main job what a service may be asked for, and is
    of no single program."""


class BatchedOptions(KernelOptions, BatchOptions):
    """All that one program of a batch may be asked for."""


M = TypeVar("M", bound=Record)
R = TypeVar("R")
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def fields_of(model: type[Record]) -> dict[str, FieldInfo]:
    """Fields of a model: those of its bases in the order in which these are named, then its own."""
    return {name: model.model_fields[name] for name in _names(model)}


def _names(model: type) -> dict[str, None]:
    names: dict[str, None] = {}
    if issubclass(model, Record) and model is not Record:
        for base in model.__bases__:
            names |= _names(base)
        names |= dict.fromkeys(n for n in model.__annotations__ if n in model.model_fields)
    return names


def described(field: FieldInfo) -> str:
    """An option's description in one line."""
    return " ".join((field.description or "").split())


def plain_type(annotation: Any) -> Any:
    """A type without what pydantic checks beside it."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return plain_type(inner[0])
    if origin in (Union, UnionType):
        return Union[tuple(plain_type(each) for each in inner)]  # noqa: UP007
    if origin is tuple:
        return tuple[plain_type(inner[0]), ...]  # type: ignore[misc]
    return annotation


def bounds_of(annotation: Any) -> dict[str, float]:
    """Inclusive bounds `ge` and `le`, wherever in the type they stand."""
    found: dict[str, float] = {}
    for inner in get_args(annotation):
        if get_origin(inner) is not None:
            found |= bounds_of(inner)
    for note in getattr(annotation, "__metadata__", ()):
        for each in note.metadata if isinstance(note, FieldInfo) else (note,):
            found |= {name: getattr(each, name) for name in ("ge", "le") if hasattr(each, name)}
    return found


def checked(model: type[M], values: Mapping[str, Any], prefix: str = "") -> M:
    """The options from what was given. Raises InputError, one line, for the first that is wrong."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        if error.title != model.__name__:
            raise  # a record of ours inside: our fault, not the caller's
        raise InputError(f"{prefix}{first_problem(error)}") from None


def first_problem(error: ValidationError) -> str:
    """The first thing that is wrong, in one line that names the option."""
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "option":
        return first["msg"]
    name = ".".join(str(part) for part in first["loc"])
    unknown = first["type"] == "extra_forbidden"
    return f"{name}: {'Unexpected keyword argument' if unknown else first['msg']}"


# Functions that take an option as a parameter of its own.


def as_parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """An option as a keyword of a function, with type, bounds, default and description."""
    annotation = Annotated[field.rebuild_annotation(), Field(description=described(field))]  # type: ignore[valid-type]
    default = field.get_default(call_default_factory=True)
    return inspect.Parameter(name, _KEYWORD, default=default, annotation=annotation)


def flattened(
    call: Callable[..., R],
    parameter_of: Callable[[str, FieldInfo], inspect.Parameter] = as_parameter,
    prefix: str = "",
) -> Callable[..., R]:
    """`call`, whose keyword `options` takes a model, with a keyword for each field in its place.

    What the model refuses, a keyword that nobody knows among it, is an InputError that begins with
    `prefix`.
    """
    hints = typing.get_type_hints(call, include_extras=True)
    model: type[Record] = hints["options"]
    fields = {parameter_of(name, field): name for name, field in fields_of(model).items()}
    names = {parameter.name: name for parameter, name in fields.items()}
    own = {*inspect.signature(call).parameters} - {"options"}

    @functools.wraps(call)
    def flat(*args: Any, **given: Any) -> R:
        asked = {names.get(name, name): given.pop(name) for name in [*given] if name not in own}
        return call(*args, **given, options=checked(model, asked, prefix))

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(call).parameters.values():
        if parameter.name == "options":
            parameters += fields
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
    flat.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=hints["return"]
    )
    flat.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": hints["return"]}
    return flat
