"""One candidate through every gate, in order of cost; the first that fails ends it.

`screen` is the first look at a branch of a search: right on the program's own inputs, and how fast.
A wrong kernel is often a fast one; without it, that would lead the search and breed. What passes
there has proven nothing: only what `evaluate` finds is ever judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from cudaops.cuda.devices import device
from cudaops.domain.base import Record
from cudaops.domain.evaluation import Evaluation
from cudaops.domain.execution import Compiled, CompileFailed, Measurement, Misbehaved, Ran
from cudaops.domain.judge import is_left_open, speedup_of, weighted_speedup
from cudaops.domain.judgement import Comparison, Gate, GateName, Qualification
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Say
from cudaops.domain.workload import Workload
from cudaops.executors.base import InputSet, Trial
from cudaops.executors.stopping import Meanwhile
from cudaops.gates.clocks import clocks_gate, is_disturbed
from cudaops.gates.compile import compile_gate
from cudaops.gates.correctness import Subject, Verifier
from cudaops.gates.domain import Judged, domain_gate
from cudaops.gates.hygiene import hygiene_gate
from cudaops.gates.isolation import isolation_gate
from cudaops.gates.object import object_gate
from cudaops.gates.physical_floor import floor_gate
from cudaops.gates.plugged import plugin_gate
from cudaops.gates.preprocessed import preprocessed_gate
from cudaops.gates.qualification import qualification_of
from cudaops.gates.reference import reference_gate
from cudaops.gates.timed_outputs import Closer, timed_outputs_gate
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.anchors import anchors_of_run
from cudaops.sandbox.draw import rounds_to_integers
from cudaops.sandbox.drawn import DIRECTED
from cudaops.sandbox.shared_variables import with_variables
from cudaops.sandbox.whole_program import whole_program_gates
from cudaops.sandbox.workbench import Workbench

LEARNERS = ("llm:", "mcp:")
"""Who is told of a candidate that is too slow whether it is right as well, on the smallest
workload: they write the next one. Recipes and transformations learn nothing from it."""
CLEARLY = 1.1
"""A candidate that ranks so many times above the bar is not measured in full before it is known to
be right. Chosen: over what the few samples of a rank may be off."""
QUICK = 0.15
"""Of the run's time limit: what a measurement may have taken of which one of four times as many
samples is made."""
MEASUREMENTS = 3
"""Fresh measurements at most, where the clocks say that another might tell more. Chosen: with
seven runs at once on an H100, four of seven measurements were undisturbed (2026-11-24)."""


def evaluate(
    bench: Workbench, rewrite: Rewrite, min_speedup: float, say: Say = lambda line: None
) -> Evaluation:
    """Run the gates, cheapest first. Never decides: that is `judge`.

    A candidate that fails a gate stops there. One below `min_speedup` skips the expensive gates,
    except that a user's own rewrite is still checked for correctness. With `--review` a quarantined
    candidate goes on. The same rewrite at the same threshold is not evaluated again, so a repeated
    request is not a second sample of its time.
    """
    known = bench.evaluated.get((rewrite.id, min_speedup))
    if known is not None:
        say("this rewrite was judged before; its result:")
        for gate in known.gates:
            say(gate)
        return known
    evaluating = Evaluating(bench, rewrite, say)
    evaluating.run(min_speedup)
    evaluation = evaluating.evaluation()
    bench.evaluated[rewrite.id, min_speedup] = evaluation
    return evaluation


class Evaluating:
    """The gates of one candidate so far, and what was found out on the way. `screen` takes the
    same first steps."""

    def __init__(self, bench: Workbench, rewrite: Rewrite, say: Say) -> None:
        self.bench = bench
        self.rewrite = rewrite
        self.say = say
        self.gates: list[Gate] = []
        self.preprocessed_sha256: str | None = None
        self.comparisons: tuple[Comparison, ...] = ()
        self.fresh: tuple[Comparison, ...] = ()
        self.judged_before = 0
        self.qualification: Qualification | None = None
        self.failure: CompileFailed | Misbehaved | None = None
        self.profile: Profile | None = None
        self.ran = False
        self._subjects_judged: Sequence[Subject] = ()

    def evaluation(self) -> Evaluation:
        return Evaluation(
            rewrite=self.rewrite,
            gates=tuple(self.gates),
            comparisons=self.comparisons,
            fresh=self.fresh,
            judged_before=self.judged_before,
            preprocessed_sha256=self.preprocessed_sha256,
            isolation=self.bench.executor.isolation if self.ran else None,
            referenced=self.bench.program.problem is not None,
            qualification=self.qualification,
            failure=self.failure,
            profile=self.profile,
        )

    def run(self, min_speedup: float) -> None:
        """Every gate that is reached."""
        compiled = self.build()
        if compiled is None:
            return
        if not self._timed_once(min_speedup):
            if self.comparisons and self.rewrite.proposer == "user":
                self._correct(compiled)
            elif self.comparisons and self.rewrite.proposer.startswith(LEARNERS):
                self.right_on_captured(compiled, smallest=True)
            return
        dear = self._correct(compiled) and self._worth_its_time() and self._whole()
        if dear and self._as_the_reference():
            self._add(isolation_gate(self.bench.executor.isolation))

    def build(self) -> tuple[Compiled, ...] | None:
        """The candidate for every workload; None where its text or its build is refused."""
        target = device(self.bench.executor.device)
        hygiene = hygiene_gate(self.rewrite, self.bench.policy, target, self.bench.authors_ptx)
        if not self._add(hygiene):
            return None
        plugged = plugin_gate(self.bench.program, self.rewrite)
        return self._compiled() if plugged is None or self._add(plugged) else None

    def _add(self, gate: Gate) -> bool:
        """Keep and announce it. Whether the candidate goes on."""
        self.gates.append(gate)
        self.say(gate)
        return gate.passed or (gate.quarantined and self.bench.policy.review)

    def _compiled(self) -> tuple[Compiled, ...] | None:
        text = preprocessed_gate(self.bench, self.rewrite)
        self.preprocessed_sha256 = text.sha256 or None
        if not self._add(text.gate):
            return None
        gate, compiled = compile_gate(self.bench, self.rewrite)
        self._add(gate)
        if isinstance(compiled, CompileFailed):
            self.failure = compiled
            return None
        of_each = {one.unit.callee: one for one in compiled}.values()
        gates = [object_gate(self.bench, self.rewrite, one) for one in of_each]
        # What fails for one instance must not hide behind what a person may release of another.
        worst = min(gates, key=lambda gate: (gate.passed, gate.quarantined))
        return compiled if self._add(worst) else None

    def _timed_once(self, min_speedup: float) -> bool:
        """Whether it is fast enough to look at further. A few samples tell where it clearly is: a
        fresh measurement decides, when every other gate has passed."""
        started = time.monotonic()
        self.ran = True
        comparisons = self.bench.compare(self.rewrite, ranked=True)
        if not (self.bench.models_time or _is_clear(comparisons, min_speedup)):
            comparisons = self.bench.compare(self.rewrite)
        if isinstance(comparisons, Misbehaved | CompileFailed):
            return self._failed("checker", comparisons, started)
        self.comparisons = comparisons
        self.profile = comparisons[0].candidate.profile
        # As the judge reckons it: what is stopped here must not have reached his bar.
        speedup = speedup_of(comparisons, self.bench.policy, not self.bench.models_time)
        return speedup.value >= min_speedup

    def _correct(self, compiled: Sequence[Compiled]) -> bool:
        """Whether it computes what the author's does. Nothing is timed meanwhile: what is needed of
        whole programs and of ncu later is made beside it."""
        bench = self.bench
        bench.profile_ahead(self.rewrite)
        bench.run_programs_ahead()
        bench.prepare(self.rewrite)
        bench.run_programs_ahead(self.rewrite)
        self._subjects_judged = subjects = self._judged_subjects(compiled)
        self.qualification = qualification_of(bench)
        if not bench.qualification_told:
            bench.qualification_told = True
            self.say(f"the oracle: {self.qualification.line}")
        return self._right_everywhere(subjects, self._begin_the_rest)

    def _begin_the_rest(self) -> None:
        """What follows drawn inputs, which are many small launches one after the other, where it
        takes no time from a GPU: the whole program, and what a certificate says of the baseline."""
        bench, rewrite = self.bench, self.rewrite
        bench.ahead.begin(lambda: list(whole_program_gates(bench, rewrite)))
        bench.ahead.begin(lambda: anchors_of_run(bench))

    def _right_everywhere(
        self, subjects: Sequence[Subject], meanwhile: Callable[[], None] = lambda: None
    ) -> bool:
        """On the subjects' inputs and on drawn ones. Where kernels run on a GPU, the drawn ones,
        most of which a processor runs, are begun meanwhile; elsewhere `meanwhile` is called when
        they begin."""
        work = partial(domain_gate, self.bench, self.rewrite, self.say)
        if self.bench.models_time:
            if not self._verified(subjects):
                return False
            meanwhile()
            return self._on_the_domain(work())
        drawn = Meanwhile(work)
        try:
            return self._verified(subjects) and self._on_the_domain(drawn.result())
        finally:
            drawn.end()

    def _on_the_domain(self, judged: Judged) -> bool:
        self.failure = judged.misbehaved or self.failure
        return self._add(judged.gate)

    def _judged_subjects(self, compiled: Sequence[Compiled]) -> list[Subject]:
        return self._subjects(compiled, self.bench.judged_of(self.rewrite))

    def right(self, compiled: Sequence[Compiled]) -> bool:
        """The checker and every result; nothing that is only needed to judge times is made."""
        return self._right_everywhere(self._judged_subjects(compiled))

    def right_on_captured(self, compiled: Sequence[Compiled], *, smallest: bool = False) -> bool:
        """The checker, and the result of the program's own inputs; none of the gates after them.
        `smallest`: on the judged workload of each instance with the least memory that the rewrite
        applies to."""
        wanted = self.bench.judged_of(self.rewrite)
        if smallest:
            taken = [w for w in wanted if self.bench.plan(w, self.rewrite).applicable] or wanted
            first: dict[str, Workload] = {}
            for workload in sorted(taken, key=lambda w: w.size_bytes):
                first.setdefault(workload.callee, workload)
            wanted = tuple(first.values())
        return self._verified(self._subjects(compiled, wanted), gates=2)

    def _say_of(self, workload: Workload, line: str) -> None:
        """Which launch it is about, where there are several."""
        judged = [w.id for w in self.bench.judged]
        if workload.id in judged and len(judged) > 1:
            line += f", launch {judged.index(workload.id) + 1} of {len(judged)}"
        self.say(line)

    def _subjects(self, compiled: Sequence[Compiled], wanted: Sequence[Workload]) -> list[Subject]:
        bench, served = self.bench, self.bench.workloads_of(self.rewrite)
        if not bench.has_oracles:
            self.say("reference runs on every set of inputs")
        return [
            Subject(
                one,
                bench.plan(workload, self.rewrite),
                bench.oracle(workload, partial(self._say_of, workload)),
                None if bench.models_time else partial(bench.run_author, workload),
                partial(bench.run_author, workload, check="full"),
                partial(_as_rounded, bench, workload)
                if rounds_to_integers(workload, bench.kernel, bench.program)
                else None,
                partial(_in_another_order, bench, workload),
            )
            for workload, one in zip(served, compiled, strict=True)
            if workload in wanted
        ]

    def _verified(self, subjects: Sequence[Subject], gates: int | None = None) -> bool:
        """The checker, every input set, ten launches in a row; `gates`: only the first so many."""
        bench = self.bench
        self.say("memcheck, racecheck, synccheck")
        folder = bench.folder / "work" / f"verify-{self.rewrite.id}"
        verifier = Verifier(bench.executor, bench.policy, folder, bench.timeout_s)
        passed = all(self._add(gate) for gate in islice(verifier.gates(subjects), gates))
        bench.discard(folder.name)
        self.failure = verifier.misbehaved
        return passed

    def _worth_its_time(self) -> bool:
        """The clocks, and the physical floor; where time is measured, of a fresh measurement whose
        launches are watched, and of a profile, which serves the next iteration too."""
        bench, decisive = self.bench, self.comparisons
        profile: Profile | Misbehaved | CompileFailed | None = self.profile
        if not bench.models_time:
            bench.finish_programs(self.rewrite)
            if not self._measured_again():
                return False
            decisive = self.fresh
            profile = bench.profile(self.rewrite)
            self.profile = profile if isinstance(profile, Profile) else None
        return self._add(floor_gate(profile, decisive[0], bench.workloads[0]))

    def _measured_again(self) -> bool:
        """A fresh measurement, taken anew where others on the GPU spoilt it: every one of them is
        looked at for wrong results, and counted as a decision."""
        self.say("timing again, and checking the results of timed launches")
        oracles = [self.bench.oracle(workload) for workload in self.bench.judged_of(self.rewrite)]
        folder = self.bench.folder / "work" / f"timed-{self.rewrite.id}"
        thorough = False
        for left in reversed(range(MEASUREMENTS)):
            started = time.monotonic()
            self.judged_before = self.bench.put_to_decision()
            fresh = self.bench.compare(self.rewrite, thorough=thorough, watched=folder)
            if isinstance(fresh, Misbehaved | CompileFailed):
                return self._failed("timed_outputs", fresh, started)
            self.fresh = fresh
            closer = self._by_further_runs(folder / "author")
            outputs = timed_outputs_gate(oracles, fresh, self.bench.policy, closer)
            self.bench.discard(folder.name)
            clocks = clocks_gate(fresh)
            quick = time.monotonic() - started < self.bench.timeout_s * QUICK
            is_open = is_left_open(fresh, self.bench.policy, self.judged_before)
            thorough = is_open and quick and not thorough
            if not (left and outputs.passed and (is_disturbed(fresh) or thorough)):
                break
            why = "with more samples: these are inconclusive"
            if is_disturbed(fresh):
                why = f"the GPU is busy: {clocks.summary}"
            self.say(f"measuring it once more, {why}")
        return self._add(outputs) and self._add(clocks)

    def _by_further_runs(self, folder: Path) -> Closer:
        """What is too far off for `timed_outputs`, as the gates on results look at it."""
        bench = self.bench
        verifier = Verifier(bench.executor, bench.policy, folder, bench.timeout_s)
        subjects = {one.oracle.workload.id: one for one in self._subjects_judged}
        return lambda oracle, a, ran, reference: verifier.accuracy_of(
            subjects[oracle.workload.id], a, ran, reference
        )

    def _whole(self) -> bool:
        return all(self._add(gate) for gate in whole_program_gates(self.bench, self.rewrite))

    def _as_the_reference(self) -> bool:
        """Where there is a reference in Python, whether the whole program computes what it does."""
        if self.bench.program.problem is None:
            return True
        self.say("whole program on new inputs, against the reference")
        return self._add(reference_gate(self.bench, self.rewrite))

    def _failed(self, name: GateName, how: Misbehaved | CompileFailed, started: float) -> bool:
        self.failure = how
        seconds = time.monotonic() - started
        return self._add(Gate(name=name, passed=False, summary=how.placed, seconds=seconds))


def _as_rounded(
    bench: Workbench, workload: Workload, inputs: InputSet, folder: Path
) -> tuple[dict[int, str], ...]:
    """Results of the author's kernel on a processor with everything rounded up, and down."""
    processor, limit = bench.executor.processor, bench.timeout_s
    compiled = processor.compile(bench.unit(workload, None))
    if isinstance(compiled, CompileFailed):
        return ()
    trial = Trial(workload, baseline_plan(workload), inputs)
    ran = [
        processor.run_trials(
            compiled, [trial], folder / way, rounding=way, limit_s=limit, timeout_s=limit
        )[0].outcome
        for way in DIRECTED
    ]
    left = bench.oracle(workload).variables
    return tuple(with_variables(one, left).outputs for one in ran if isinstance(one, Ran))


def _in_another_order(
    bench: Workbench, workload: Workload, inputs: InputSet, folder: Path
) -> Ran | Misbehaved:
    """The author's kernel with the last thread first; on a GPU once more."""
    trial = Trial(workload, baseline_plan(workload), inputs)
    limit = bench.timeout_s
    return bench.executor.run_trials(
        bench.compiled_baseline(workload), [trial], folder,
        last_first=True, limit_s=limit, timeout_s=limit,
    )[0].outcome  # fmt: skip


def _is_clear(
    ranked: Sequence[Comparison] | Misbehaved | CompileFailed, min_speedup: float
) -> bool:
    """Whether no further sample would say otherwise: it is that fast, or it fails."""
    if isinstance(ranked, Misbehaved | CompileFailed):
        return True
    return weighted_speedup(ranked) >= CLEARLY * min_speedup


def right(bench: Workbench, rewrite: Rewrite, say: Say) -> tuple[Gate, ...]:
    """The gates of `evaluate` on text, build and results, as far as the first that fails; none on
    times or on the whole program."""
    looking = Evaluating(bench, rewrite, say)
    compiled = looking.build()
    if compiled is not None:
        looking.right(compiled)
    return tuple(looking.gates)


class Screened(Record):
    """What the first look at a rewrite found."""

    time_us: float | None
    """On the most expensive workload, taken by itself; None where a gate refused the rewrite or it
    could not be timed. Ranks branches; nothing is accepted on it."""
    baseline_us: float
    """The author's kernel on the same workload by the same clock."""
    failure: str | None = None
    """Why there is no time: the gate that refused it, or what it did when it was timed."""
    gates: tuple[Gate, ...]
    """Those that were reached of hygiene, preprocessed, compile, object, checker and
    correctness_captured, in this order."""


def screen(bench: Workbench, rewrite: Rewrite, say: Say = lambda line: None) -> Screened:
    """The first gates of `evaluate` by the same code, then a time.

    What is only quarantined goes on where a person reviews, as in `evaluate`. Builds and references
    are kept: a rewrite that is judged later does not pay for them again.

    Raises InputError where the author's own kernel cannot be timed.
    """
    looking = Evaluating(bench, rewrite, say)
    compiled = looking.build()
    right = compiled is not None and looking.right_on_captured(compiled)
    time_us, failure = _timed(bench, rewrite, say) if right else (None, looking.gates[-1].line)
    return Screened(
        time_us=time_us,
        baseline_us=bench.baseline_time(bench.workloads[0]).median_us,
        failure=failure,
        gates=tuple(looking.gates),
    )


def _timed(bench: Workbench, rewrite: Rewrite, say: Say) -> tuple[float | None, str | None]:
    measured = bench.measure(rewrite, bench.workloads[0])
    if not isinstance(measured, Measurement):
        return None, measured.placed
    say(f"{rewrite.title}: {measured.median_us:.1f} us{measured.provenance_of_time}")
    return measured.median_us, None
