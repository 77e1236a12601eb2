"""Draws of a problem: its inputs and what its reference makes of them, from a child process.

    <folder>/inputs/NAME.bin    arrays that the reference takes, raw, in C order
             inputs/numbers     its numbers, 8 bytes each: int64 or double
             wanted/NAME.bin    what it gives

What the child writes is untrusted: names, types and shapes are checked before anything is read.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import ValidationError

from cudaops.domain.base import Record
from cudaops.domain.program import ProblemArray, ProblemNumber, ReferenceProblem
from cudaops.domain.workload import Element
from cudaops.errors import InputError, PrerequisiteError
from cudaops.executors.isolation.phases import Confinement, Phase
from cudaops.executors.isolation.places import installed_below, interpreter, is_everybodys
from cudaops.executors.isolation.view import ProgramView
from cudaops.executors.process import Finished, run_bounded
from cudaops.executors.untrusted_files import (
    UntrustedFileError,
    copy_untrusted,
    read_untrusted,
    remove,
    temporary_folder,
    untrusted_size,
)

WORKER = Path(__file__).with_name("worker.py")
FIRST_SEED = 42
"""Of the inputs that a run works on. KernelBench's own: `seed_num` of `eval_kernel_against_ref`."""
FURTHER_DRAWS = 3
"""Secret ones. Chosen: a kernel that is right on four draws by luck is rare; each costs one run of
the reference and one of the program."""
ASKING_S = 60.0
"""For an interpreter to say where its packages are."""
MOST_MANIFEST = 1 << 20
MOST_LINE = 1000
_PROGRAM = b"\x7fELF"
"""How an executable of Linux begins. Source: System V ABI, ELF header."""

_ELEMENTS: dict[str, Element] = {
    "float16": "f16", "float32": "f32", "float64": "f64", "int8": "i8", "uint8": "u8",
    "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64",
    "uint64": "u64", "bool": "bool",
}  # fmt: skip
_ASK = (
    "import importlib.util as u, json, sys, sysconfig as c; print(json.dumps({'places': "
    "[sys.prefix, sys.base_prefix], 'packages': [p for p in sys.path if p.endswith('-packages')], "
    "'library': c.get_paths()['stdlib'], 'numpy': bool(u.find_spec('numpy')), "
    "'version': sys.version_info[:2]}))"
)


class ReferenceDraw(NamedTuple):
    """One set of inputs with what the reference makes of it."""

    problem: ReferenceProblem
    folder: Path

    @property
    def inputs(self) -> Path:
        """What the program is run on."""
        return self.folder / "inputs"

    def copy_inputs(self, target: Path) -> None:
        """The inputs as a new folder of ours."""
        target.mkdir(parents=True)
        sizes = {f"{a.name}.bin": a.size_bytes for a in self.problem.arrays}
        for name, size in {**sizes, "numbers": 8 * len(self.problem.numbers)}.items():
            copy_untrusted(self.inputs, name, target / name, size, size)

    def wanted(self, output: ProblemArray) -> Path:
        """The reference's result."""
        return self.folder / "wanted" / f"{output.name}.bin"


class _Array(Record):
    name: str
    dtype: str
    shape: tuple[int, ...]
    origin: Literal["input", "state", "output"] = "output"
    path: str = ""


class _Number(Record):
    name: str
    value: int | float
    origin: Literal["input", "init"]
    path: str


class _Manifest(Record):
    form: Literal["function", "kernelbench"]
    arrays: tuple[_Array, ...]
    numbers: tuple[_Number, ...]
    outputs: tuple[_Array, ...]
    returns: Literal["one", "tuple", "list", "dict"]


class Interpreter(NamedTuple):
    """Somebody's Python, and what it needs to read to start."""

    path: Path
    runs: tuple[Path, ...]

    def run(
        self,
        worker: Path,
        words: Sequence[str],
        *,
        cwd: Path,
        reads: Iterable[Path],
        writes: Iterable[Path],
        timeout_s: float,
        env: Mapping[str, str],
        phase: Phase = "program",
        tool: str = "reference",
        beside: Iterable[Path] = (),
        moves: bool = False,
    ) -> Finished:
        """One of our workers in it, confined. `beside`: what else it runs or includes; `moves`: see
        `Confinement`. Raises as `run_bounded` does."""
        worker = worker.absolute()
        return run_bounded(
            [str(self.path), "-B", str(worker), *words],
            cwd=cwd,
            timeout_s=timeout_s,
            env=env,
            tool=tool,
            confine=Confinement(
                phase, (*reads, worker), tuple(writes), (*self.runs, *beside), moves=moves
            ),
        )


def find_interpreter(named: str | None) -> Interpreter:
    """The interpreter of this name or path, this process's own where None.

    Raises InputError: there is none, it is no Python 3.10 or later, or it has no numpy.
    """
    found = shutil.which(named or sys.executable)
    if found is None:
        raise InputError(f"--python {named}: no such program")
    path = Path(found).absolute()
    try:
        with path.open("rb") as file:
            if file.read(4) != _PROGRAM:
                raise ValueError("a script, such as a shim")
        told = _asked(path)
        packages = map(Path, told["packages"])
        installed = (path, path.resolve(), *installed_below(*told["places"]))
        known = {Path(told["library"]), *packages, *installed}
        version = tuple(told["version"])
    except (OSError, PrerequisiteError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"--python {path}: it is not a Python interpreter; name the interpreter itself"
        ) from error
    if version < (3, 10):
        raise InputError(f"--python {path}: it is Python {version[0]}.{version[1]}, not 3.10")
    if not told["numpy"]:
        raise InputError(f"--python {path}: it has no numpy; name one with the problem's packages")
    return Interpreter(path, tuple(p for p in sorted(known) if not is_everybodys(p)))


def _asked(path: Path) -> dict[str, Any]:
    """What the interpreter says of itself. Confined as all that it is asked for later: a run folder
    that names it may be a stranger's. Raises as `json.loads` and `run_bounded` do."""
    with temporary_folder("cudaops-python-") as folder:
        done = run_bounded(
            [str(path), "-c", _ASK],
            cwd=folder,
            timeout_s=ASKING_S,
            tool="reference",
            confine=Confinement("program", (), (folder,), interpreter(path)),
        )
    return dict(json.loads(done.stdout))


def further_seeds(secret: int) -> tuple[int, ...]:
    """Seeds of the draws that nobody knows before; fit for numpy's and torch's generators."""
    words = np.random.SeedSequence(secret).generate_state(FURTHER_DRAWS)
    return tuple(int(word) for word in words)


class Drawer:
    """Draws inputs of one problem."""

    def __init__(
        self, script: Path, interpreter: Interpreter, timeout_s: float, hidden: Sequence[Path] = ()
    ) -> None:
        """`hidden`: folders of ours that the problem is not shown. `timeout_s` is for one draw."""
        self.script = script
        self.interpreter = interpreter
        self.timeout_s = timeout_s
        self.hidden = hidden

    def draw(self, seeds: Sequence[int], folder: Path) -> tuple[ReferenceDraw, ...]:
        """One draw a seed, under `folder` (created). Raises InputError, one line, where the problem
        is wrong, takes too long, or has not the same shapes each time."""
        folder.mkdir(parents=True, exist_ok=True)
        self._run(seeds, folder)
        draws = tuple(self._read(folder / str(number)) for number in range(len(seeds)))
        for one in draws[1:]:
            require_same_shapes(draws[0].problem, one.problem)
        return draws

    def _run(self, seeds: Sequence[int], folder: Path) -> None:
        script, limit = self.script, self.timeout_s * len(seeds)
        with ProgramView(script.parent, (script.name,), self.hidden) as view:
            done = self.interpreter.run(
                WORKER,
                (str(view.folder / script.name), str(folder), *map(str, seeds)),
                cwd=view.folder,
                reads=view.reads,
                writes=(view.root, folder),
                timeout_s=limit,
                env={"CUDA_VISIBLE_DEVICES": ""},
            )
        if done.timed_out:
            often = "once" if len(seeds) == 1 else f"{len(seeds)} times"
            raise InputError(
                f"{script.name} takes longer than {limit:g} s to draw inputs and compute its "
                f"reference {often}; raise --timeout"
            )
        if done.exceeded or done.flooded:
            why = done.exceeded or "it prints too much"
            raise InputError(f"{script.name} was stopped: {why}")
        if done.exit_code != 0:
            raise InputError(self._why(done.stderr, done.exit_code, folder))

    def _why(self, stderr: str, code: int, folder: Path) -> str:
        try:
            text = read_untrusted(folder, "refused", MOST_LINE * 4).decode("utf-8", "replace")
        except UntrustedFileError:
            lines = [line.strip() for line in stderr.splitlines() if line.strip()]
            last = f": {lines[-1]}" if lines else ""
            text = f"{self.script.name} ends with exit code {code}{last}"
        return " ".join(text.split())[:MOST_LINE]

    def _read(self, folder: Path) -> ReferenceDraw:
        """What the worker wrote, if it is what it says."""
        try:
            data = read_untrusted(folder, "manifest.json", MOST_MANIFEST)
            problem = self._problem(_Manifest.model_validate_json(data))
            for part, arrays in (("inputs", problem.arrays), ("wanted", problem.outputs)):
                for array in arrays:
                    if untrusted_size(folder / part, f"{array.name}.bin") != array.size_bytes:
                        raise UntrustedFileError(array.name, "has a wrong size")
            if untrusted_size(folder / "inputs", "numbers") != 8 * len(problem.numbers):
                raise UntrustedFileError("numbers", "has a wrong size")
        except (UntrustedFileError, ValidationError, KeyError) as error:
            what = " ".join(str(error).split())[:200]
            raise InputError(
                f"{self.script.name} changed its recorded inputs ({what}); it may only "
                "draw inputs and compute"
            ) from error
        return ReferenceDraw(problem, folder)

    def _problem(self, manifest: _Manifest) -> ReferenceProblem:
        def array(one: _Array) -> ProblemArray:
            if not one.name.isidentifier() or not one.name.isascii():
                raise KeyError(one.name)
            element = _ELEMENTS[one.dtype]
            return ProblemArray(
                name=one.name, element=element, shape=one.shape, origin=one.origin, path=one.path
            )

        if not manifest.outputs:
            raise InputError(f"{self.script.name}: its reference returns no array")
        return ReferenceProblem(
            script=str(self.script),
            sha256=script_digest(self.script),
            python=str(self.interpreter.path),
            form=manifest.form,
            arrays=tuple(map(array, manifest.arrays)),
            numbers=tuple(
                ProblemNumber(
                    name=one.name, value=one.value, origin=one.origin, path=one.path,
                    is_integer=isinstance(one.value, int),
                )
                for one in manifest.numbers
            ),
            outputs=tuple(map(array, manifest.outputs)),
            returns=manifest.returns,
        )  # fmt: skip


def draws_of(
    problem: ReferenceProblem, secret: int, folder: Path, timeout_s: float, hidden: Sequence[Path]
) -> tuple[ReferenceDraw, ...]:
    """The draw that a run works on, and further ones from a secret seed, under `folder`.

    Raises InputError where the problem is not as the run found it, or as `Drawer.draw` does.
    """
    script = Path(problem.script)
    if script_digest(script) != problem.sha256:
        raise InputError(f"{script} was changed since the run; start another run")
    remove(folder)
    drawer = Drawer(script, find_interpreter(problem.python), timeout_s, hidden)
    draws = drawer.draw((FIRST_SEED, *further_seeds(secret)), folder)
    require_same_shapes(problem, draws[0].problem)
    return draws


def script_digest(script: Path) -> str:
    """SHA-256 of the problem's file. Raises InputError where it cannot be read."""
    try:
        return hashlib.sha256(script.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{script} cannot be read: {error.strerror}") from error


def require_same_shapes(first: ReferenceProblem, other: ReferenceProblem) -> None:
    """Raise InputError, naming what differs, where two draws are not of one shape."""
    for one, two in zip(_told(first), _told(other), strict=False):
        if one != two:
            raise InputError(
                f"{Path(first.script).name} draws {one} with one seed and {two} with another; "
                "names, types and shapes must be the same each time"
            )
    if first.shapes != other.shapes:
        raise InputError(f"{Path(first.script).name} draws more values with one seed than another")


def _told(problem: ReferenceProblem) -> list[str]:
    arrays: list[Any] = [*problem.arrays, *problem.outputs]
    told = [f"{a.name} of shape {a.shape} ({a.element})" for a in arrays]
    kinds = {True: "an integer", False: "a floating number"}
    return [*told, *(f"{n.name} as {kinds[n.is_integer]}" for n in problem.numbers)]
