"""What a rewrite of a Triton kernel is compared with: captured launches, drawn inputs, and what the
author's kernel makes of them.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from cudaops.domain.execution import Misbehaved
from cudaops.domain.judgement import Policy
from cudaops.domain.options import ProgramRun
from cudaops.domain.workload import ELEMENT_BYTES, FLOATING, Element
from cudaops.errors import InputError
from cudaops.executors.arrays import decoded, read_array, stored, write_array, write_widened
from cudaops.executors.compare import non_finite_share, same_contents
from cudaops.gates.accuracy import compare_sides
from cudaops.gates.tolerance import Sides
from cudaops.sandbox.inputs import INTEGER_KINDS, CaseDraw, CaseKind, ascends, drawn
from cudaops.sandbox.variations import varied
from cudaops.triton.scalar_arguments import other_numbers, sizes
from cudaops.triton.source import (
    OPTIONS,
    TritonKernel,
    TritonProgram,
    loaded_names,
    touches_by_memory,
)
from cudaops.triton.worker_process import Capture, Host, TritonLaunch

POISON = 0x7F
"""What stands in every byte of an output before a launch: 3.39e38 as float32, 127 as int8."""
MOST_WORKLOADS = 4
COVERED = 0.9
"""Share of the kernel's time that the workloads stand for, where so many are enough."""
MOST_CONTENTS = 4 << 30
"""Bytes kept of all launches."""
FLOATING_CASES: tuple[CaseKind, ...] = (
    "exact", "exact_positive", "signed", "positive", "scaled", "large", "infinite", "structured",
    "tiny",
)  # fmt: skip
LARGE_CASES: tuple[CaseKind, ...] = ("exact", "signed", "positive", "structured")
LARGE_BYTES = 256 << 20
"""Of all buffers of a launch, from where on fewer sets are drawn: each is written, read by two
processes and compared."""
RESIZED = "smaller"
"""Name of cases in which size arguments are smaller ones."""
OTHER_NUMBERS = "other"
"""Name of cases in which a number that says nothing of where memory is touched is another one."""
MOST_OTHER = 12
ANY_INTEGERS = "any_integers"
"""Name of the case in which integers are any of their type: where none says what is touched."""
MOST_RESIZED = 4
AXIS = (-3, -2, -1, 0, 1, 2, 3, 4)
"""Powers of two by which a block size is tried."""
LEAST_BLOCK, MOST_BLOCK = 16, 16384
WARPS, STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5)
MOST_CONFIGS = 512
"""For which grids are computed: three block sizes."""


class LaunchInputs(NamedTuple):
    """Inputs of one launch."""

    name: str
    kind: CaseKind
    inputs: tuple[str | None, ...]
    """File a buffer; None: filled with POISON."""
    scalars: Mapping[str, int | float] = {}

    def task(self, repeat: int) -> dict[str, Any]:
        """As the worker takes it."""
        return {
            "inputs": self.inputs, "poison": POISON, "scalars": dict(self.scalars),
            "repeat": repeat,
        }  # fmt: skip


class TritonWorkload(NamedTuple):
    """One configuration of the kernel's launches."""

    name: str
    launch: TritonLaunch
    folder: Path
    weight: float
    """Of its time among the timed ones; 0 of one that is judged only."""
    reads: frozenset[int]
    """Buffers whose contents before the launch matter."""
    changed: frozenset[int]

    def buffer_name(self, number: int) -> str:
        """The parameter that it is given by."""
        return next(k for k, v in self.launch.args.items() if v and v.get("buffer") == number)

    def task(self, cases: Sequence[Mapping[str, Any]], **changes: Any) -> dict[str, Any]:
        """As the worker takes it."""
        plain = self.launch.model_dump(mode="json", include={"grid", "args", "options", "buffers"})
        return {**plain, "cases": list(cases), **changes}


def left(folder: Path, case: LaunchInputs, same: Sequence[bool], name: str) -> tuple[Path, ...]:
    """Files with what a launch left in each buffer: its input's where that is the same."""
    return tuple(
        Path(path) if is_same and path is not None else folder / f"{name}{n}"
        for n, (path, is_same) in enumerate(zip(case.inputs, same, strict=True))
    )


class TritonReference(NamedTuple):
    """What the author's kernel makes of one case."""

    workload: TritonWorkload
    case: LaunchInputs
    outputs: tuple[Path, ...]
    wide: tuple[Path, ...] | None
    in_places: bool
    """Some of its results are not finite."""


class TritonBench(NamedTuple):
    """An open program."""

    program: TritonProgram
    kernel: TritonKernel
    values: dict[str, int]
    """Meta-parameters that can be set."""
    fixed: dict[str, str]
    host: Host
    folder: Path
    argvs: tuple[ProgramRun, ...]
    captures: tuple[Capture, ...]
    workloads: tuple[TritonWorkload, ...]
    references: tuple[TritonReference, ...]
    wide_problem: str
    configs: tuple[dict[str, int], ...]

    @property
    def module(self) -> Path:
        """The author's kernel as a file of its own."""
        return self.folder / "author.py"

    def grid(self, workload: TritonWorkload, values: Mapping[str, int]) -> tuple[int, ...] | None:
        """The author's grid with these meta-parameters; None where it is not known."""
        blocks = {k: v for k, v in {**self.values, **values}.items() if k in self.kernel.constexpr}
        blocks = {k: v for k, v in blocks.items() if k in self.values}
        known = zip(self.configs, workload.launch.grids, strict=True)
        return next((grid for config, grid in known if config == blocks), None)


def axes(program: TritonProgram, kernel: TritonKernel) -> dict[str, tuple[int, ...]]:
    """Values that the tuner may give each meta-parameter, in the order in which it tries them.

    A block size that no loop of the kernel steps by is never made smaller: at other sizes than the
    captured ones it may be what covers a row. Where the grid depends on it, the grid covers it.
    """
    values, _ = program.values(kernel.name)
    found: dict[str, tuple[int, ...]] = {}
    for name, value in values.items():
        if name in OPTIONS:
            found[name] = WARPS if name == "num_warps" else STAGES
            found[name] = tuple(sorted({*found[name], value}))
        elif value >= LEAST_BLOCK and value & (value - 1) == 0:
            covered = _is_stepped(kernel, name) or _is_in_grid(program, kernel, name)
            steps = [value * 2**n if n >= 0 else value >> -n for n in AXIS if n >= 0 or covered]
            found[name] = tuple(v for v in steps if LEAST_BLOCK <= v <= MOST_BLOCK)
    ordered = [n for n in kernel.parameters if n in found][:3]
    return {name: found[name] for name in [*ordered, *(o for o in OPTIONS if o in found)]}


def _is_stepped(kernel: TritonKernel, name: str) -> bool:
    """Whether a loop of the kernel runs as often as this makes necessary."""
    loops = (n for n in ast.walk(kernel.node) if isinstance(n, ast.For | ast.While))
    bounds = (n.iter if isinstance(n, ast.For) else n.test for n in loops)
    return any(name in loaded_names(bound) for bound in bounds)


def _is_in_grid(program: TritonProgram, kernel: TritonKernel, name: str) -> bool:
    for site in program.sites(kernel.name):
        place = site.places.get(name)
        texts = [site.grid, *site.derived]
        words = {name, *([place.variable] if place and place.variable else [])}
        named = {n.value for t in texts for n in ast.walk(ast.parse(t))
                 if isinstance(n, ast.Constant) and isinstance(n.value, str)}  # fmt: skip
        named |= {n for t in texts for n in loaded_names(ast.parse(t))}
        named |= {n.attr for t in texts for n in ast.walk(ast.parse(t))
                  if isinstance(n, ast.Attribute)}  # fmt: skip
        if not words & named:
            return False
    return True


def open_bench(
    program: TritonProgram,
    named: str | None,
    runs: Sequence[ProgramRun],
    host: Host,
    folder: Path,
    script: Path,
    seed: int,
    more: Mapping[str, int] | None = None,
) -> TritonBench:
    """Capture, draw, and run the author's kernel on what was drawn, in the new `folder`.

    `more`: meta-parameters of a rewrite, for which the grid must be known too.
    Raises InputError where the program cannot be judged as it is.
    """
    if named is not None and named not in program.kernels:
        known = ", ".join(program.kernels)
        raise InputError(f"there is no kernel {named!r} in {program.name}; it has {known}")
    configs = {k: _configs(program, program.kernels[k], more or {}) for k in program.kernels}
    captures = []
    for number, run in enumerate(runs):
        task = _capture_task(program, named, configs, keeps=MOST_CONTENTS)
        captures.append(host.capture(script, run.argv, task, folder / f"capture_{number}"))
    if host.on_gpu and captures[0].uuid:
        host = host._replace(uuid=f"GPU-{captures[0].uuid}")
    target = _target(program, named, captures)
    kernel = program.kernels[target]
    (folder / "author.py").write_text(program.module(target), encoding="utf-8")
    workloads = tuple(_workloads(target, kernel, runs, captures, folder))
    values, fixed = program.values(target)
    bench = TritonBench(
        program, kernel, values, fixed, host, folder, tuple(runs), tuple(captures), workloads, (),
        "", tuple(configs[target]),
    )  # fmt: skip
    return _referenced(bench, seed)


def _configs(
    program: TritonProgram, kernel: TritonKernel, more: Mapping[str, int]
) -> list[dict[str, int]]:
    """Settings of the block sizes for which grids are computed; the author's is the first."""
    values, _ = program.values(kernel.name)
    blocks = {name: value for name, value in values.items() if name in kernel.constexpr}
    tried = {n: v for n, v in axes(program, kernel).items() if n in blocks}
    found = [blocks, {**blocks, **{n: v for n, v in more.items() if n in blocks}}]
    for setting in itertools.islice(itertools.product(*tried.values()), MOST_CONFIGS):
        found.append({**blocks, **dict(zip(tried, setting, strict=True))})
    return [one for n, one in enumerate(found) if one not in found[:n]]


def _capture_task(
    program: TritonProgram,
    named: str | None,
    configs: Mapping[str, list[dict[str, int]]],
    keeps: int,
) -> dict[str, Any]:
    names = [named] if named is not None else [*program.kernels]
    sites = {
        name: [
            {
                "first": s.first_line, "last": s.last_line, "grid": s.grid, "derived": s.derived,
                "variables": {p.variable: n for n, p in s.places.items() if p.variable},
            }
            for s in program.sites(name)
        ]
        for name in names
    }  # fmt: skip
    return {
        "kernels": {name: program.kernels[name].parameters for name in names},
        "sites": sites, "configs": configs, "most_bytes": keeps,
    }  # fmt: skip


def capture_again(
    bench: TritonBench, text: str, run: ProgramRun, out: Path, script: Path
) -> Capture:
    """The whole program with another text in its file, contents left alone. Raises InputError where
    it does not run to its end."""
    changed = TritonProgram(text, bench.program.name)
    configs: dict[str, list[dict[str, int]]] = {bench.kernel.name: []}
    task = _capture_task(changed, bench.kernel.name, configs, keeps=0)
    return bench.host.capture(script, run.argv, task, out, text)


def _target(program: TritonProgram, named: str | None, captures: Sequence[Capture]) -> str:
    totals: dict[str, float] = {}
    for one in (launch for capture in captures for launch in capture.launches):
        totals[one.kernel] = totals.get(one.kernel, 0.0) + one.total_us
    if not totals:
        which = named or "none of its @triton.jit functions by kernel[grid](...)"
        raise InputError(
            f"{program.name} launches {'not ' if named else ''}{which}; captured are launches by "
            "Python in the process that is started"
        )
    return max(totals, key=lambda name: totals[name])


def _workloads(
    target: str,
    kernel: TritonKernel,
    runs: Sequence[ProgramRun],
    captures: Sequence[Capture],
    folder: Path,
) -> Iterator[TritonWorkload]:
    found = [
        (number, launch)
        for number, capture in enumerate(captures)
        for launch in capture.launches
        if launch.kernel == target
    ]
    problem = next((launch.problem for _, launch in found if launch.problem), "")
    if problem:
        raise InputError(f"{target} cannot be captured: {problem}; tensors and numbers are")
    kept = [(number, launch) for number, launch in found if launch.folder]
    if not kept:
        raise InputError(f"{target} cannot be captured: its buffers are larger than can be kept")
    kept.sort(key=lambda pair: -pair[1].total_us * runs[pair[0]].weight)
    total = sum(launch.total_us * runs[number].weight for number, launch in kept) or 1.0
    covered = 0.0
    for place, (number, launch) in enumerate(kept):
        weight = launch.total_us * runs[number].weight / total
        if place >= MOST_WORKLOADS or (covered > COVERED and runs[number].weight > 0):
            continue
        covered += weight
        where = folder / f"capture_{number}" / launch.folder
        for n, buffer in enumerate(launch.buffers):
            if not 0 <= buffer.bytes == (where / f"before_{n}").stat().st_size:
                raise InputError(f"{target}: what was captured of buffer {n} is not whole")
        changed = frozenset(
            n
            for n in range(len(launch.buffers))
            if not same_contents(where / f"before_{n}", where / f"after_{n}")
        )
        reads = frozenset(
            v["buffer"]
            for name, v in launch.args.items()
            if v and "buffer" in v and (_is_read(kernel, name) or v["buffer"] not in changed)
        )
        yield TritonWorkload(f"w{place}", launch, where, weight, reads, changed)


def _is_read(kernel: TritonKernel, parameter: str) -> bool:
    """Whether something may be loaded by way of a parameter: what it flows into stands in a call
    other than a store's place. Assumed rather than not."""
    tainted = {parameter}
    assigns = [n for n in ast.walk(kernel.node) if isinstance(n, ast.Assign | ast.AugAssign)]
    for _ in assigns:
        for node in assigns:
            if loaded_names(node.value) & tainted:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                tainted |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    harmless = ("tl.arange", "tl.program_id", "tl.cdiv", "tl.multiple_of", "tl.max_contiguous")
    for call in (n for n in ast.walk(kernel.node) if isinstance(n, ast.Call)):
        called = ast.unparse(call.func)
        given = [*call.args, *(k.value for k in call.keywords)]
        given = given[1:] if called == "tl.store" else given
        if called not in harmless and any(loaded_names(one) & tainted for one in given):
            return True
    return False


def _referenced(bench: TritonBench, seed: int) -> TritonBench:
    """With the author's results on the captured inputs and on every drawn set that suits it."""
    folder = bench.folder / "inputs"
    cases = {w.name: tuple(_cases(w, seed, folder, bench.kernel)) for w in bench.workloads}
    launches = [w.task([c.task(1) for c in cases[w.name]]) for w in bench.workloads]
    wide_module = bench.folder / "author_wide.py"
    wide_module.write_text(widened_text(bench.module.read_text("utf-8")), encoding="utf-8")
    (bench.folder / "wide").mkdir()
    wide_cases = {
        w.name: tuple(_widened_case(w, c, bench.folder / "wide") for c in cases[w.name])
        for w in bench.workloads
    }
    wide_launches = [_widened(w, wide_cases[w.name]) for w in bench.workloads]
    out, wide_out = bench.folder / "author", bench.folder / "author_wide"
    plain = _alone(bench, bench.module, launches, out)
    # A process of its own: a compiler that has no such kernel may end it.
    wide = _alone(bench, wide_module, wide_launches, wide_out)
    if plain["failed"]:
        raise InputError(f"{bench.kernel.name} cannot be run alone: {plain['failed']}")
    found: list[TritonReference] = []
    problems = [wide["failed"]] if wide["failed"] else []
    pairs = [(w, *both) for w in bench.workloads
             for both in zip(cases[w.name], wide_cases[w.name], strict=True)]  # fmt: skip
    for number, (workload, case, wide_case) in enumerate(pairs):
        ran = plain["cases"][number]
        if case.name == "captured":
            _require_captured(bench, workload, case, out / f"job_0_{number}", ran)
        if ran["failed"] or not all(ran["guards"]):
            continue
        outputs = left(out / f"job_0_{number}", case, ran["same"][0], "0_")
        widened = wide["cases"][number] if wide["cases"] else {"failed": wide["failed"]}
        files = None
        if not widened["failed"]:
            files = left(wide_out / f"job_0_{number}", wide_case, widened["same"][0], "0_")
            _as_left(workload, outputs, files)
        elif not problems:
            problems.append(widened["failed"])
        shares = [
            non_finite_share(stored(outputs[n], workload.launch.buffers[n].element))
            for n in workload.changed
            if workload.launch.buffers[n].element in FLOATING
        ]
        if case.name != "captured" and shares and min(shares) == 1.0:
            continue
        if case.kind in ("exact", "signed") and any(shares):
            continue
        found.append(TritonReference(workload, case, outputs, files, any(shares)))
    problem = problems[0][:200] if problems else ""
    return bench._replace(references=tuple(found), wide_problem=problem)


def _alone(
    bench: TritonBench, module: Path, launches: Sequence[Mapping[str, Any]], out: Path
) -> dict[str, Any]:
    """The author's kernel on every case, in a process of its own."""
    jobs = [{"module": str(module), "launches": launches}]
    task = {"task": "run", "kernel": bench.kernel.name, "jobs": jobs}
    asked = bench.host.asked(task, out, reads=(bench.folder,))
    if isinstance(asked, Misbehaved):
        return {"failed": f"its process {asked.message}", "cases": []}
    found: dict[str, Any] = asked[0]["jobs"][0]
    return found


def _require_captured(
    bench: TritonBench,
    workload: TritonWorkload,
    case: LaunchInputs,
    folder: Path,
    ran: Mapping[str, Any],
) -> None:
    """Raise InputError where the author's kernel alone does not give what the launch left."""
    name = bench.kernel.name
    if ran["failed"]:
        raise InputError(f"{name} cannot be run alone: {ran['failed']}")
    if not all(ran["guards"]):
        raise InputError(f"{name} writes beyond a buffer that it is given; mend that first")
    if not workload.changed:
        raise InputError(f"{name} changes no buffer, so there is nothing to compare")
    outputs = left(folder, case, ran["same"][0], "0_")
    for n in workload.changed:
        element = workload.launch.buffers[n].element
        after = stored(workload.folder / f"after_{n}", element)
        sides = Sides(stored(outputs[n], element), after, None, "the program's own result")
        # Places that no launch writes hold poison here and something else there.
        if n not in workload.reads and _unwritten(outputs[n]):
            continue
        found = compare_sides(sides, element, workload.buffer_name(n), Policy())
        if not found.passed:
            raise InputError(f"{name} alone does not give what its launch left: {found.summary}")


def _unwritten(path: Path) -> bool:
    return bool((read_array(path, "u8") == POISON).any())


def _cases(
    workload: TritonWorkload, seed: int, folder: Path, kernel: TritonKernel
) -> Iterator[LaunchInputs]:
    """The captured inputs, then drawn ones, then other numbers, then smaller sizes."""
    free = not touches_by_memory(kernel.node)  # integers may be any of their type
    launch = workload.launch
    before = [str(workload.folder / f"before_{n}") for n in range(len(launch.buffers))]
    outs = workload.changed - workload.reads
    captured = tuple(None if n in outs else path for n, path in enumerate(before))
    yield LaunchInputs("captured", "captured", captured)
    if workload.changed & workload.reads:
        after = (str(workload.folder / f"after_{n}") for n in range(len(before)))
        again = tuple(a if n in workload.changed & workload.reads else b
                      for n, (a, b) in enumerate(zip(after, captured, strict=True)))  # fmt: skip
        yield LaunchInputs("relaunched", "relaunched", again)
    floating = any(b.element in FLOATING for n, b in enumerate(launch.buffers) if n not in outs)
    kinds = FLOATING_CASES if floating else INTEGER_KINDS
    if sum(b.bytes for b in launch.buffers) > LARGE_BYTES:
        kinds = LARGE_CASES if floating else kinds[:3]
    last = captured
    for kind in kinds:
        inputs = _drawn_inputs(workload, captured, kind, seed, folder, floating=floating)
        last = inputs if kind in ("signed", "positive") else last
        yield LaunchInputs(kind, kind, inputs)
    integers = [b.element for n, b in enumerate(launch.buffers) if n not in outs]
    if free and any(e not in FLOATING and e != "bool" for e in integers):
        inputs = _drawn_inputs(workload, captured, "drawn", seed, folder, floating=False)
        yield LaunchInputs(ANY_INTEGERS, "drawn", inputs)
    for name, value in other_numbers(launch, workload.folder, kernel)[:MOST_OTHER]:
        yield LaunchInputs(f"{OTHER_NUMBERS} {name} = {value:.9g}", "drawn", last, {name: value})
    known = sizes(launch, kernel)
    for size in sorted(set(known.values()), reverse=True)[:MOST_RESIZED]:
        less = size - max(1, size // 3) | 1
        changed = {name: less for name, value in known.items() if value == size and less < size}
        if changed:
            yield LaunchInputs(f"{RESIZED} {', '.join(changed)} = {less}", "drawn", last, changed)


def _drawn_inputs(
    workload: TritonWorkload,
    captured: tuple[str | None, ...],
    kind: CaseKind,
    seed: int,
    folder: Path,
    *,
    floating: bool,
) -> tuple[str | None, ...]:
    where = folder / f"{workload.name}_{kind}"
    where.mkdir(parents=True)
    generator = np.random.default_rng((seed, get_args(CaseKind).index(kind)))
    found: list[str | None] = []
    for n, (buffer, path) in enumerate(zip(workload.launch.buffers, captured, strict=True)):
        if path is None or (buffer.element in FLOATING) != floating or buffer.element == "bool":
            found.append(path)
            continue
        values = read_array(path, buffer.element)
        if not floating and ascends(values) and kind != "drawn":
            found.append(path)
            continue
        target = where / str(n)
        if kind == "drawn":
            values = varied("any", buffer.element, values, generator)
        else:
            values = drawn(CaseDraw(kind, seed), buffer.element, values, generator)
        write_array(target, values, buffer.element)
        found.append(str(target))
    return tuple(found)


_WIDE_NAMES = {"float16", "bfloat16", "float32"}


def widened_text(module: str) -> str:
    """The author's kernel with float64 for every narrower floating type that it names."""

    class Widen(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
            self.generic_visit(node)
            if node.attr in _WIDE_NAMES:
                node.attr = "float64"
            return node

    return ast.unparse(Widen().visit(ast.parse(module))) + "\n"


def _widened(workload: TritonWorkload, cases: Sequence[LaunchInputs]) -> dict[str, Any]:
    """The workload with float64 in every floating buffer."""
    buffers, factors = [], []
    for one in workload.launch.buffers:
        factor = 8 // ELEMENT_BYTES[one.element] if one.element in FLOATING else 1
        element = "f64" if one.element in FLOATING else one.element
        buffers.append({"bytes": one.bytes * factor, "element": element})
        factors.append(factor)
    args: dict[str, Any] = {}
    for name, value in workload.launch.args.items():
        if value is not None and "buffer" in value:
            n = value["buffer"]
            element = "f64" if value["element"] in FLOATING else value["element"]
            value = {"buffer": n, "offset": value["offset"] * factors[n], "element": element}
        elif value is not None and value.get("dtype") in ("fp16", "bf16", "fp32"):
            value = {"dtype": "float64"}
        args[name] = value
    return workload.task([case.task(1) for case in cases], buffers=buffers, args=args)


def _widened_case(workload: TritonWorkload, case: LaunchInputs, folder: Path) -> LaunchInputs:
    """The same inputs as float64."""
    files: list[str | None] = []
    for path, one in zip(case.inputs, workload.launch.buffers, strict=True):
        if path is None or one.element not in FLOATING or one.element == "f64":
            files.append(path)
            continue
        target = folder / f"{workload.name}_{Path(path).parent.name}_{Path(path).name}"
        if not target.exists():
            write_widened(target, Path(path), one.element)
        files.append(str(target))
    return case._replace(inputs=tuple(files))


def _as_left(workload: TritonWorkload, outputs: Sequence[Path], wide: Sequence[Path]) -> None:
    """Places that nobody wrote hold other numbers as float64: let them be the plain ones."""
    for n in workload.changed - workload.reads:
        element: Element = workload.launch.buffers[n].element
        if element not in FLOATING or element == "f64":
            continue
        plain = read_array(outputs[n], element)
        poison = decoded(np.full(ELEMENT_BYTES[element], POISON, np.uint8), element)[0]
        left = plain == poison
        if poison == poison and left.any():
            values = read_array(wide[n], "f64").copy()
            values[left] = plain[left]
            write_array(wide[n], values, "f64")


def weights(workloads: Sequence[TritonWorkload]) -> list[float]:
    """Shares of the timed workloads, whose sum is 1."""
    total = math.fsum(w.weight for w in workloads) or 1.0
    return [w.weight / total for w in workloads]
