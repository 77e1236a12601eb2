"""Gate `reference`: the whole program against its reference in Python, on inputs drawn anew; and
the same of the author's own kernels before anything else is done with them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from cudaops.domain.execution import CompileFailed, Misbehaved, ProgramRan
from cudaops.domain.judgement import Gate, Policy
from cudaops.domain.program import ProblemArray, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import FLOATING, Element
from cudaops.errors import InputError
from cudaops.executors.arrays import Values, stored
from cudaops.executors.compare import Differing, differing, distance, share_beyond
from cudaops.executors.untrusted_files import UntrustedFileError, remove, untrusted_size
from cudaops.gates.accuracy import compare_sides
from cudaops.gates.tolerance import Sides
from cudaops.problem.reference import ReferenceDraw
from cudaops.sandbox.workbench import Workbench

TOLERANCE: dict[Element, float] = {"f16": 1e-2, "bf16": 1e-2, "f32": 1e-4, "f64": 1e-8}
"""Of an element's own size plus the root mean square of the output. Source: the first three are
KernelBench's (`get_tolerance_for_precision`), with which it compares; f64 is chosen. What is no
floating number must be equal."""

MOST = 0.5
"""No more than this share of the elements may be off by more than that of their own size: a norm
alone lets a few large elements hide all others; of a product of signed numbers some 5 % are as near
to 0 as that. Chosen: far from both."""


def reference_gate(bench: Workbench, rewrite: Rewrite) -> Gate:
    """The program with the rewrite in it, on every draw: within TOLERANCE of the reference, and as
    near to it as the author's kernels are (`accuracy.compare_sides`, with the reference as the
    yardstick)."""
    started = time.monotonic()
    spliced, told = bench.spliced(rewrite), ""
    numbers: dict[str, float] = {}
    failed: str | None = None
    folder = bench.folder / "work" / f"reference-{rewrite.id}"
    for number, draw in enumerate(bench.draws):
        found = outputs_of(bench, spliced, draw, folder / str(number))
        if isinstance(found, str):
            failed = found
            break
        for output in draw.problem.outputs:
            passed, told, of_it = _as_near(bench, draw, output, found)
            for key, value in of_it.items():
                numbers[key] = max(value, numbers.get(key, value))
            failed = failed or (None if passed else told)
    bench.discard(folder.name)
    text = f"{len(bench.draws)} draws of the problem: {told}" if failed is None else failed
    return Gate(
        name="reference",
        passed=failed is None,
        summary=text,
        numbers={**numbers, "draws": float(len(bench.draws))},
        seconds=time.monotonic() - started,
    )


def require_author(bench: Workbench) -> None:
    """Raise InputError, one line, where the author's kernels do not compute what the reference
    does, on the inputs of the run and on further ones that nobody knows before."""
    problem = bench.program.problem
    assert problem is not None, "applies to Python references only"
    for draw in bench.draws:
        folder = authors_outputs(bench, draw)
        for output in draw.problem.outputs:
            wrong = _wrong(_result(folder, output), draw, output, bench.policy)
            if wrong is not None:
                ours, script = bench.program.main_path, Path(problem.script).name
                raise InputError(f"{ours} does not compute what {script} does: {wrong}")


def authors_outputs(bench: Workbench, draw: ReferenceDraw) -> Path:
    """What the author's kernels make of a draw, run once. Raises InputError where they do not run
    to their end."""
    folder = draw.folder / "author"
    if not folder.is_dir():
        found = outputs_of(bench, bench.program, draw, draw.folder / "running")
        if isinstance(found, str):
            raise InputError(f"{bench.program.main_path} does not run: {found}")
        found.rename(folder)
    return folder


def outputs_of(bench: Workbench, program: Program, draw: ReferenceDraw, folder: Path) -> Path | str:
    """The folder with the program's raw outputs on a draw; or what went wrong, in one line."""
    remove(folder)
    folder.mkdir(parents=True)
    lockstep = bench.captured.timed.captured.lockstep
    argv = (str(draw.inputs.absolute()), str(folder.absolute()))
    ran = bench.executor.run_program(
        program, argv, bench.timeout_s, lockstep=lockstep, output=folder.absolute()
    )
    if isinstance(ran, Misbehaved | CompileFailed):
        return ran.placed
    assert isinstance(ran, ProgramRan)
    if ran.exit_code != 0:
        said = (ran.stderr.strip().splitlines() or [""])[-1][:200]
        return f"the program exits with code {ran.exit_code}: {said}"
    try:
        for output in draw.problem.outputs:
            if untrusted_size(folder, f"{output.name}.bin") != output.size_bytes:
                raise UntrustedFileError(output.name, "has a wrong size")
    except UntrustedFileError as error:
        return f"the program did not write its outputs: {error}"
    return folder


def _result(folder: Path, output: ProblemArray) -> Values:
    return stored(folder / f"{output.name}.bin", output.element)


def _as_near(
    bench: Workbench, draw: ReferenceDraw, output: ProblemArray, found: Path
) -> tuple[bool, str, dict[str, float]]:
    """Whether a candidate's output is as right as the author's, in words and numbers."""
    result = _result(found, output)
    wrong = _wrong(result, draw, output, bench.policy)
    author = _result(authors_outputs(bench, draw), output)
    right = stored(draw.wanted(output), output.element)
    sides = Sides(result, author, right if output.element in FLOATING else None, None)
    near = compare_sides(sides, output.element, output.name, bench.policy)
    return near.passed and wrong is None, wrong or near.summary, near.numbers


def _wrong(result: Values, draw: ReferenceDraw, output: ProblemArray, policy: Policy) -> str | None:
    """How an output differs from the reference's; None where it does not. A precision that the user
    allowed is compared with the author's kernels alone."""
    right = stored(draw.wanted(output), output.element)
    relative = TOLERANCE.get(output.element, 0.0)
    if output.element in FLOATING and policy.allow_precision is not None:
        relative = max(relative, TOLERANCE["f16"])
    scale = distance(result, right).scale if relative else 0.0
    found = differing(result, right, relative, scale)
    if found is not None:
        return _told(found, output, relative)
    hidden = share_beyond(result, right, relative) if relative else 0.0
    if hidden > MOST:
        return f"`{output.name}`: {hidden:.0%} of it differ by more than {relative:.0e} of its size"
    return None


def _told(found: Differing, output: ProblemArray, relative: float) -> str:
    places = np.unravel_index(found.first, output.shape) if output.shape else ()
    where = "".join(f"[{int(place)}]" for place in places)
    allowed = f" by more than {relative:.0e}" if relative else ""
    return (
        f"`{output.name}{where}` is {_shown(found.result)}, and the reference says "
        f"{_shown(found.reference)}; {found.elements} of {output.count} elements differ{allowed}"
    )


def _shown(value: int | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
