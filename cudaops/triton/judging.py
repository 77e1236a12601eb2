"""The gates of a rewrite of a Triton kernel, and its times against the author's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cudaops.domain.execution import CompileFailed, Measurement, Misbehaved, Timing
from cudaops.domain.judge import TRITON_REQUIRED, TRITON_REQUIRED_MEASURED, judge
from cudaops.domain.judgement import Comparison, Gate, GateName, Judgement, Policy
from cudaops.domain.workload import ELEMENT_BYTES, FLOATING, Element
from cudaops.errors import InputError
from cudaops.executors.arrays import Array, Values, decoded, in_step, stored
from cudaops.executors.compare import same_contents
from cudaops.gates.accuracy import BufferAccuracy, compare_sides, compare_sides_exactly
from cudaops.gates.clocks import clocks_gate
from cudaops.gates.isolation import isolation_gate
from cudaops.gates.tolerance import Sides
from cudaops.sandbox.inputs import EXACT_CASES
from cudaops.sandbox.printed import AuthorsOutput, compare_printed
from cudaops.triton.bench import (
    OTHER_NUMBERS,
    POISON,
    RESIZED,
    TritonBench,
    TritonReference,
    TritonWorkload,
    capture_again,
    left,
    weights,
)
from cudaops.triton.source import TritonProgram
from cudaops.triton.worker_process import one_line

REPEATS = 5
"""Launches on the captured inputs in one process. Chosen: a race shows in few launches or seldom;
the timed launches, some hundreds, are compared as well."""
TUNE_S = 120.0
"""Longest that one walk of the tuner takes; a configuration takes about a second to compile."""


class TritonCandidate(NamedTuple):
    """What is judged: a kernel module, values of meta-parameters, and the program with both."""

    title: str
    module: Path
    values: dict[str, int]
    program: str
    """The author's file with it in."""


class TritonJudgement(NamedTuple):
    """The judgement of one candidate."""

    judgement: Judgement
    comparisons: tuple[Comparison, ...] = ()
    """On which it was decided: `fresh`, or `samples` where there are no others."""
    samples: tuple[Comparison, ...] = ()
    """Of the first measurement."""
    fresh: tuple[Comparison, ...] = ()
    judged_before: int = 0
    """Candidates of the run that were judged before."""
    failure: CompileFailed | Misbehaved | None = None


Say = Callable[[Gate], None]


def judge_candidate(
    bench: TritonBench, candidate: TritonCandidate, policy: Policy, say: Say, script: Path,
    before: int, folder: Path,
) -> TritonJudgement:  # fmt: skip
    """Take a candidate that passed hygiene through every other gate. `before`: candidates that were
    judged by this run. `folder`: new, for what it leaves."""
    taken = _Gates(bench, candidate, policy, say, folder)
    comparisons: tuple[Comparison, ...] = ()
    fresh: tuple[Comparison, ...] = ()
    if taken.run() and bench.host.on_gpu and taken.whole_program(script):
        comparisons, fresh = taken.timed()
    required = TRITON_REQUIRED_MEASURED if comparisons else TRITON_REQUIRED
    decided = judge(
        taken.gates, comparisons, policy, fresh=fresh, judged_before=before,
        isolation=bench.host.level, required=required,
    )  # fmt: skip
    return TritonJudgement(decided, fresh or comparisons, comparisons, fresh, before, taken.failure)


class _Gates:
    """One candidate being judged."""

    def __init__(
        self, bench: TritonBench, candidate: TritonCandidate, policy: Policy, say: Say, folder: Path
    ) -> None:
        self.bench, self.candidate, self.policy = bench, candidate, policy
        self.say, self.folder = say, folder
        self.gates: list[Gate] = []
        self.failure: CompileFailed | Misbehaved | None = None
        self._began = time.monotonic()
        words = "imports, constants and @triton.jit functions alone"
        self._gate("hygiene", True, words)

    def _gate(
        self, name: GateName, passed: bool, summary: str, numbers: Mapping[str, float] | None = None
    ) -> bool:
        now = time.monotonic()
        gate = Gate(
            name=name, passed=passed, summary=summary, numbers=dict(numbers or {}),
            seconds=now - self._began,
        )  # fmt: skip
        self._began = now
        self.gates.append(gate)
        self.say(gate)
        return passed

    def _launch(
        self, workload: TritonWorkload, cases: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The launch as the program with the candidate in it makes it."""
        candidate, launch = self.candidate, workload.launch
        grid = self.bench.grid(workload, candidate.values) or launch.grid
        metas = {n: v for n, v in candidate.values.items() if n not in ("num_warps", "num_stages")}
        options = {n: v for n, v in candidate.values.items() if n not in metas}
        given = {**launch.args, **{n: {"value": v} for n, v in metas.items()}}
        args = {k: v for k, v in given.items() if k in self._parameters}
        return workload.task(cases, grid=grid, args=args, options={**launch.options, **options})

    @cached_property
    def _parameters(self) -> tuple[str, ...]:
        text = self.candidate.module.read_text("utf-8")
        kernels = TritonProgram(text, self.candidate.module.name).kernels
        return kernels[self.bench.kernel.name].parameters

    def run(self) -> bool:
        """Every gate that asks for results; whether all passed."""
        bench = self.bench
        for workload in bench.workloads:
            if bench.grid(workload, self.candidate.values) is None and self.candidate.values:
                shown = ", ".join(f"{n}={v}" for n, v in self.candidate.values.items())
                return self._gate("compile", False, f"the grid for {shown} is not known")
        launches, order = [], list[TritonReference]()
        for workload in bench.workloads:
            mine = [r for r in bench.references if r.workload.name == workload.name]
            tasks = [r.case.task(REPEATS if r.case.name == "captured" else 1) for r in mine]
            launches.append(self._launch(workload, tasks))
            order += mine
        out = self.folder / "run"
        task = {
            "task": "run", "kernel": bench.kernel.name,
            "jobs": [{"module": str(self.candidate.module), "launches": launches}],
        }  # fmt: skip
        asked = bench.host.asked(task, out, reads=(bench.folder, self.folder))
        if isinstance(asked, Misbehaved):
            self.failure = asked
            return self._gate("compile", True, "compiled by Triton") and self._gate(
                "checker", False, f"the kernel's process {asked.message}"
            )
        job = asked[0]["jobs"][0]
        first = job["failed"] or job["cases"][0]["failed"]
        if first:
            self.failure = CompileFailed(message=one_line(first), log=first[:4000])
            return self._gate("compile", False, one_line(first))
        self._gate("compile", True, f"compiled by Triton {asked[0]['triton']}")
        return self._results(out, order, job["cases"])

    def _results(
        self, out: Path, order: Sequence[TritonReference], cases: Sequence[Mapping[str, Any]]
    ) -> bool:
        wrong = [(r, c) for r, c in zip(order, cases, strict=True)
                 if c["failed"] or not all(c["guards"])]  # fmt: skip
        if wrong:
            reference, case = wrong[0]
            why = one_line(case["failed"]) or "writes into the guard zone of " + ", ".join(
                reference.workload.buffer_name(n) for n, ok in enumerate(case["guards"]) if not ok
            )
            where = f"{reference.workload.name} {reference.case.name}"
            return self._gate("checker", False, f"{where}: {why}")
        zones = f"guard zones of 64 KiB around every buffer hold after {len(cases)} launches"
        self._gate("checker", True, zones, {"launches": len(cases)})
        found: dict[str, list[tuple[TritonReference, int, BufferAccuracy]]] = {}
        changed: list[str] = []
        for number, (reference, case) in enumerate(zip(order, cases, strict=True)):
            for result, same in enumerate(case["same"]):
                files = left(out / f"job_0_{number}", reference.case, same, f"{result}_")
                found.setdefault(_group(reference, result), []).extend(
                    (reference, n, self._compared(reference, n, files[n]))
                    for n in sorted(reference.workload.changed)
                )
                changed += _changed(reference, same)
        order_of: tuple[GateName, ...] = (
            "correctness_captured", "correctness_exact", "correctness_perturbed",
            "correctness_domain", "repeat",
        )  # fmt: skip
        told = [self._compared_gate(name, found.get(name, [])) for name in order_of]
        passed = all(told)
        names = ", ".join(sorted(set(changed)))
        summary = f"changes {names}, which the author's kernel leaves alone"
        if not changed:
            summary = "every buffer that the author's kernel leaves alone holds what it held"
        return (
            self._gate("unchanged_inputs", not changed, summary)
            and passed
            and self._gate_of(isolation_gate(self.bench.host.level))
        )

    def _gate_of(self, gate: Gate) -> bool:
        self.gates.append(gate)
        self.say(gate)
        return gate.passed

    def _compared_gate(
        self, name: GateName, found: Sequence[tuple[TritonReference, int, BufferAccuracy]]
    ) -> bool:
        sets = {(r.workload.name, r.case.name) for r, _, _ in found}
        numbers = {"input_sets": float(len(sets))}
        failed = next(((r, a) for r, _, a in found if not a.passed), None)
        if failed is not None:
            reference, accuracy = failed
            text = f"{reference.workload.name} {reference.case.name}: {accuracy.summary}"
            return self._gate(name, False, text, {**numbers, **accuracy.numbers})
        if name == "repeat":
            text = f"{REPEATS} launches on the captured inputs: every result matches"
            return self._gate("repeat", True, text, numbers)
        if not found:
            text = {
                "correctness_exact": "no floating inputs, or the author's results on small "
                "integers are not finite: nothing to compare",
                "correctness_domain": "no other number or smaller size on which the "
                "author's kernel runs",
                "correctness_perturbed": "no drawn inputs on which the author's kernel runs",
            }.get(name, "nothing was compared")
            # Without drawn inputs nothing is known beyond the program's own: that is refused.
            return self._gate(name, name != "correctness_perturbed", text, numbers)
        worst = max((a for _, _, a in found), key=lambda a: max(a.numbers.values(), default=0.0))
        if name == "correctness_captured":
            text = f"captured inputs: {worst.summary}"
        elif name == "correctness_domain":
            shown = "; ".join(sorted({c.removeprefix(f"{RESIZED} ") for _, c in sets}))
            what = "launches of smaller sizes and other numbers"
            text = f"matches the baseline on {len(sets)} {what} ({shown})"
            numbers["inputs"] = float(len(sets))
        else:
            text = f"{len(sets)} sets of inputs match: {', '.join(sorted({c for _, c in sets}))}"
        return self._gate(name, True, text, {**worst.numbers, **numbers})

    def _compared(self, reference: TritonReference, n: int, result: Path) -> BufferAccuracy:
        workload = reference.workload
        element: Element = workload.launch.buffers[n].element
        exact = reference.case.kind in EXACT_CASES
        compare = compare_sides_exactly if exact else compare_sides
        right = reference.outputs[n]
        wide = None if reference.wide is None else reference.wide[n]
        equal = same_contents(result, right)
        sides = Sides(
            stored(result, element), stored(right, element),
            stored(wide, "f64") if wide is not None and element in FLOATING else None,
            self.bench.wide_problem or "there is none", reference.in_places, equal,
        )  # fmt: skip
        if n not in workload.reads and element in FLOATING:
            sides = _written(sides, element)
        return compare(sides, element, workload.buffer_name(n), self.policy)

    def whole_program(self, script: Path) -> bool:
        """The author's program with the candidate in it, on every run of it."""
        bench = self.bench
        for number, (run, capture) in enumerate(zip(bench.argvs, bench.captures, strict=True)):
            out = self.folder / f"program_{number}"
            try:
                again = capture_again(bench, self.candidate.program, run, out, script)
            except InputError as error:
                return self._gate("whole_program", False, one_line(str(error)))
            name = bench.kernel.name
            before, after = (
                sum(one.launches for one in c.launches if one.kernel == name)
                for c in (capture, again)
            )
            if (before, capture.exit) != (after, again.exit):
                text = f"{after} launches of {name} and exit code {again.exit}; the author's "
                text += f"program makes {before} and exits with {capture.exit}"
                return self._gate("whole_program", False, text)
            grids = {one.grid for one in again.launches if one.kernel == name}
            wanted = {
                bench.grid(w, self.candidate.values) or w.launch.grid
                for w in bench.workloads
                if w.folder.parent.name == f"capture_{number}"
            }
            if other := wanted - grids:
                text = f"launches {name} on grids {sorted(grids)}, and {other} was judged"
                return self._gate("whole_program", False, text)
            found = compare_printed(
                capture.stdout, again.stdout, self.policy.rtol_program, AuthorsOutput()
            )
            if not found.matches:
                return self._gate("whole_program", False, found.summary)
        return self._gate(
            "whole_program", True, found.summary, {"numbers": float(found.numbers_compared)}
        )

    def timed(self) -> tuple[tuple[Comparison, ...], tuple[Comparison, ...]]:
        """Times of both, and once more; gates on what the timed launches left and on the clocks."""
        bench = self.bench
        timed = [w for w in bench.workloads if w.weight > 0]
        references = [captured_reference(bench, w) for w in timed]
        pairs = []
        for workload, reference in zip(timed, references, strict=True):
            case = {**reference.case.task(1), "repeatable": not workload.changed & workload.reads}
            pairs.append([workload.task([case]), self._launch(workload, [case])])
        out = self.folder / "time"
        task = {
            "task": "time", "kernel": bench.kernel.name, "pairs": pairs,
            "modules": [str(bench.module), str(self.candidate.module)],
        }  # fmt: skip
        asked = bench.host.asked(task, out, reads=(bench.folder, self.folder), alone=True)
        if isinstance(asked, Misbehaved):
            self._gate("timed_outputs", False, f"the timed process {asked.message}")
            return (), ()
        replies = asked[0]["pairs"]
        if not self._timed_outputs(out, references, replies):
            return (), ()
        device = bench.captures[0].device
        shares = weights(timed)
        both = [
            tuple(
                _comparison(w, share, reply, turn, device)
                for w, share, reply in zip(timed, shares, replies, strict=True)
            )
            for turn in (0, 1)
        ]
        self._gate_of(clocks_gate([*both[0], *both[1]]))
        return both[0], both[1]

    def _timed_outputs(
        self, out: Path, references: Sequence[TritonReference], replies: Sequence[Mapping[str, Any]]
    ) -> bool:
        seen = 0
        for number, (reference, reply) in enumerate(zip(references, replies, strict=True)):
            for at, side in ((1, "the rewrite"), (0, "the author's")):
                if not all(reply["guards"][at]):
                    return self._gate("timed_outputs", False, f"{side} wrote into a guard zone")
                for result, same in enumerate(reply["same"][at]):
                    seen += 1
                    files = left(out / f"pair_{number}", reference.case, same, f"{at}_{result}_")
                    for n in sorted(reference.workload.changed):
                        found = self._compared(reference, n, files[n])
                        if not found.passed:
                            text = f"{side} in timed launches: {found.summary}"
                            return self._gate("timed_outputs", False, text, found.numbers)
                    if at and (names := _changed(reference, same)):
                        text = f"timed launches change {', '.join(names)}"
                        return self._gate("timed_outputs", False, text)
        text = f"{seen} distinct results of all timed launches match"
        return self._gate("timed_outputs", True, text, {"results": float(seen)})


def _changed(reference: TritonReference, same: Sequence[bool]) -> list[str]:
    """Buffers that a launch changed and the author's kernel does not."""
    workload = reference.workload
    changed = (n for n, is_same in enumerate(same) if not is_same and n not in workload.changed)
    return [workload.buffer_name(n) for n in changed]


def _group(reference: TritonReference, result: int) -> GateName:
    """The gate that a result belongs to."""
    case = reference.case
    if case.name == "captured":
        return "correctness_captured" if result == 0 else "repeat"
    if case.name.startswith((RESIZED, OTHER_NUMBERS)):
        return "correctness_domain"
    return "correctness_exact" if case.kind in EXACT_CASES else "correctness_perturbed"


def _written(sides: Sides, element: Element) -> Sides:
    """The same with 0 where the author's kernel writes nothing; a result that has something else
    there keeps it."""
    poison = decoded(np.full(ELEMENT_BYTES[element], POISON, np.uint8), element)[0]
    if not np.isfinite(poison):
        return sides

    def kept(values: Array, baseline: Array) -> Array:
        found = values.copy()
        found[(baseline == poison) & (values == values.dtype.type(poison))] = 0
        return found

    def masked(values: Values) -> Values:
        return in_step(kept, values, sides.baseline)

    wide = None if sides.wide is None else masked(sides.wide)
    return sides._replace(result=masked(sides.result), baseline=masked(sides.baseline), wide=wide)


def _comparison(
    workload: TritonWorkload, share: float, reply: Mapping[str, Any], turn: int, device: str
) -> Comparison:
    """One round of samples, in the regime in which the rewrite gains less."""
    taken = reply["rounds"][turn]
    first = reply["rounds"][0]

    def ratio(regime: str) -> float:
        before, after = first[regime]["samples"]
        return float(np.median(before) / np.median(after))

    regime: Any = min(("cold", "warm"), key=ratio)

    def side(at: int) -> Measurement:
        host = reply["host"][at]
        samples = tuple(map(float, taken[regime]["samples"][at]))
        timing = Timing(
            regime=regime,
            cold_us=tuple(taken["cold"]["samples"][at]),
            warm_us=tuple(taken["warm"]["samples"][at]),
            launches_a_sample=taken[regime]["launches"][at],
            host_slope_us=host["us"],
            host_error_us=host["spread"],
            notices=(host["problem"],) if host["problem"] else (),
        )
        return Measurement(
            source="cuda_event", device=device, samples_us=samples, workload=workload.name,
            timing=timing,
        )  # fmt: skip

    return Comparison(workload=workload.name, weight=share, baseline=side(0), candidate=side(1))


def captured_reference(bench: TritonBench, workload: TritonWorkload) -> TritonReference:
    """The author's results on the captured inputs, without which there is no bench."""
    return next(
        r for r in bench.references if (r.workload.name, r.case.name) == (workload.name, "captured")
    )


def tune(
    bench: TritonBench, order: Mapping[str, Sequence[int]], trials: int, folder: Path
) -> list[dict[str, Any]]:
    """Settings of the author's own kernel with their times in us, the fastest first; those that
    fail last. The first one tried is the author's.

    Raises InputError where the author's own setting cannot be timed.
    """
    timed = [w for w in bench.workloads if w.weight > 0]
    launches = []
    for workload, share in zip(timed, weights(timed), strict=True):
        reference = captured_reference(bench, workload)
        grids = list(zip(bench.configs, workload.launch.grids, strict=True))
        args = {k: v for k, v in workload.launch.args.items() if k not in bench.values}
        options = {k: v for k, v in workload.launch.options.items() if k not in bench.values}
        launches.append(
            workload.task(
                [reference.case.task(1)], grids=grids, weight=share, args=args, options=options
            )
        )
    task = {
        "task": "tune", "kernel": bench.kernel.name, "module": str(bench.module),
        "launches": launches, "axes": [[n, list(v)] for n, v in order.items()],
        "start": bench.values, "trials": trials, "seconds": TUNE_S,
        "in_grid": [n for n in bench.values if n in bench.kernel.constexpr],
    }  # fmt: skip
    asked = bench.host.asked(task, folder, reads=(bench.folder,), timeout_s=2 * TUNE_S, alone=True)
    if isinstance(asked, Misbehaved):
        raise InputError(f"{bench.kernel.name}: tuning {asked.message}")
    tried = asked[0]["tried"]
    if not tried or tried[0]["time_us"] is None:
        why = tried[0]["failure"] if tried else "nothing was tried"
        raise InputError(f"{bench.kernel.name} cannot be timed: {one_line(why)}")
    author = tried[0]
    rest = [t for t in tried[1:] if t["time_us"] is not None]
    rest.sort(key=lambda t: float(t["time_us"]))
    return [author, *rest, *(t for t in tried[1:] if t["time_us"] is None)]
