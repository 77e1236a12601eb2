"""Oracle anchors: what the author's kernel gives on fixed, public inputs, bit for bit.

The inputs come of a counter and a mixing function and not of a library's random generator, so that
they are the same with every version of everything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cudaops.domain.certificate import Anchor, AnchorOutput, ProbeKind
from cudaops.domain.execution import Compiled, Ran
from cudaops.domain.workload import FLOATING, Element, Workload
from cudaops.executors.arrays import (
    UNIT_ROUNDOFF,
    Array,
    element_count,
    over_chunks,
    stored,
    write_pieces,
)
from cudaops.executors.base import Executor, InputSet
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.inputs import EXACT_RANGE, PIECE, before_path, pad_tail
from cudaops.sandbox.workbench import Workbench

ANCHOR_SEED = 20261120
"""Public, and the same in every run: anybody can make these inputs."""

SCRATCH_POISON = 0x5A

MAX_SECONDS = 60.0
"""Limit of one probe: made-up inputs may keep a kernel busy that ends on its own."""

ORDER_OR_TIME = re.compile(r"atomic|clock|globaltimer|\basm\b|nanosleep|curand|\bcub\b|thrust")
"""What makes a result depend on the order or the time in which threads run. On inputs whose sums
are exact, such as all ones, even that does not show."""

NOTHING_CHANGED = "the kernel changes no allocation"

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def anchors_of_run(bench: Workbench) -> tuple[Anchor, ...]:
    """The baseline on every probe of every workload, with the roles that the oracle found."""
    return bench.once.get("anchors", lambda: _anchors(bench))


def _anchors(bench: Workbench) -> tuple[Anchor, ...]:
    folder = bench.folder / "work" / "anchors"
    found: list[Anchor] = []
    for one in bench.judged:
        baseline, workload = bench.compiled_baseline(one), bench.oracle(one).workload
        found += anchors_of(bench.executor, baseline, workload, folder, bench.timeout_s)
    bench.discard(folder.name)
    return tuple(found)


def anchors_of(
    executor: Executor, baseline: Compiled, workload: Workload, folder: Path, timeout_s: float
) -> tuple[Anchor, ...]:
    """Run the baseline on every probe of one workload; work is done under `folder`.

    Where two runs may differ, the first probe runs twice, and what differs gets no hash. A single
    run will do where the roles of `workload`, as refined by the oracle, say that every result
    stood there bit for bit the second time, and nothing in the source depends on order or time.
    """
    floating = any(a.element in FLOATING for a in workload.allocations)
    kinds: tuple[ProbeKind, ...] = ("signed", "exact") if floating else ("captured",)
    limit = min(timeout_s, MAX_SECONDS)

    def run(probe: ProbeKind, inputs: InputSet, turn: str) -> dict[int, str] | str:
        where = folder / workload.id / probe / turn
        plan = baseline_plan(workload)
        ran = executor.run(baseline, workload, plan, inputs, where, timeout_s=limit)
        return ran.outputs if isinstance(ran, Ran) else ran.message

    unsteady: set[int] = set()
    anchors = []
    for probe in kinds:
        inputs = probe_inputs(workload, probe, folder / workload.id / probe)
        with ThreadPoolExecutor(1) as beside:  # a digest of all of them is one processor's work
            digest = beside.submit(_inputs_digest, workload, inputs)
            first = run(probe, inputs, "first")
            if probe == kinds[0] and isinstance(first, dict) and _may_differ(baseline, workload):
                unsteady = _unsteady(first, run(probe, inputs, "second"))
            outputs = () if isinstance(first, str) else _outputs(workload, probe, first, unsteady)
        problem = first if isinstance(first, str) else None if outputs else NOTHING_CHANGED
        anchors.append(
            Anchor(
                workload=workload.id,
                probe=probe,
                seed=ANCHOR_SEED,
                inputs_sha256=digest.result(),
                outputs=outputs,
                problem=problem,
                executor=executor.name,
                sm_arch="" if executor.name == "cpu" else _target(baseline),
                compiler=baseline.compiler,
            )
        )
    return tuple(anchors)


def probe_inputs(workload: Workload, probe: ProbeKind, folder: Path) -> InputSet:
    """Write the probe's contents under `folder`.

    Every floating allocation is filled, also those that the kernel only writes; all others keep
    what was captured, because it may be indices.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[int, str] = {}
    for allocation in workload.allocations:
        captured = before_path(workload, allocation)
        contents[allocation.index] = str(captured)
        if probe == "captured" or allocation.element not in FLOATING:
            continue
        path = folder / f"in_{allocation.index}.bin"
        count = element_count(allocation.size_bytes, allocation.element)
        draw = partial(_drawn, probe, allocation.index)
        write_pieces(path, allocation.element, count, PIECE, draw)
        pad_tail(path, captured, allocation.size_bytes)
        contents[allocation.index] = str(path)
    return InputSet(contents=contents, scratch_poison=SCRATCH_POISON)


def _drawn(probe: ProbeKind, stream: int, start: int, count: int) -> npt.NDArray[np.float64]:
    return _VALUES[probe](mixed(ANCHOR_SEED, stream, count, start))


def mixed(seed: int, stream: int, count: int, first: int = 0) -> npt.NDArray[np.uint64]:
    """`count` 64-bit words from word `first` on: SplitMix64 started at `seed` + 2**32 * `stream`.

    Source: Steele, Lea, Flood, Fast splittable pseudorandom number generators (OOPSLA 2014), with
    the constants of the generator of that name.
    """
    start = np.uint64((seed + (stream << 32)) % 2**64)
    words = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    words *= _GOLDEN
    words += start
    words ^= words >> np.uint64(30)
    words *= _MIX[0]
    words ^= words >> np.uint64(27)
    words *= _MIX[1]
    words ^= words >> np.uint64(31)
    return words


def _signed(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Multiples of 2**-23 in [-1, 1): exact in float32."""
    return (bits >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0


def _exact(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    span = np.uint64(2 * EXACT_RANGE + 1)
    return ((bits >> np.uint64(33)) % span).astype(np.float64) - EXACT_RANGE


_VALUES: dict[ProbeKind, Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.float64]]] = {
    "signed": _signed,
    "exact": _exact,
}


def _may_differ(baseline: Compiled, workload: Workload) -> bool:
    """Whether two runs on the same inputs may give other bits."""
    if any(a.role == "inout" for a in workload.allocations):
        return True
    return any(ORDER_OR_TIME.search(file.text) for file in baseline.unit.program.files)


def _unsteady(first: dict[int, str], second: dict[int, str] | str) -> set[int]:
    """Allocations whose contents differ between two runs; all where the second did not end."""
    if isinstance(second, str):
        return set(first)
    return {index for index in first if _digest([first[index]]) != _digest([second[index]])}


def _outputs(
    workload: Workload, probe: ProbeKind, paths: dict[int, str], unsteady: set[int]
) -> tuple[AnchorOutput, ...]:
    """Of the allocations that a launch of the author's changed."""
    outputs = []
    for allocation in workload.allocations:
        if allocation.role == "in":
            continue
        path, steady = paths[allocation.index], allocation.index not in unsteady
        exact = _integers(path, allocation.element) or (probe == "captured" and steady)
        kept = _digest([path]) if exact or steady else None
        outputs.append(AnchorOutput(index=allocation.index, sha256=kept, exact=exact))
    return tuple(outputs)


def _integers(path: str, element: Element) -> bool:
    """Whether it holds floating values, all of them integers that no rounding can have touched."""
    if element not in FLOATING:
        return False

    def integers(values: Array) -> bool:
        within = np.isfinite(values) & (np.abs(values) < 1.0 / UNIT_ROUNDOFF[element])
        return bool(np.all(within & (np.trunc(values) == values)))

    return all(over_chunks(integers, stored(path, element)))


def _inputs_digest(workload: Workload, inputs: InputSet) -> str:
    indices = sorted(a.index for a in workload.allocations)
    return _digest([inputs.contents[index] for index in indices])


def _digest(paths: list[str]) -> str:
    total = hashlib.sha256()
    for path in paths:
        with Path(path).open("rb") as stream:
            while piece := stream.read(1 << 20):
                total.update(piece)
    return total.hexdigest()


def _target(baseline: Compiled) -> str:
    """The architecture of the build, as its command names it."""
    flags = [f for f in baseline.command.split() if f.startswith("-arch=")]
    return flags[-1].removeprefix("-arch=") if flags else ""
