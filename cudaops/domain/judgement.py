"""Judgement: accepted, provisional or rejected, with every gate's numbers.

And Qualification: can the oracle tell wrong from right on this very program?
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, field_validator

from cudaops.domain.base import Record
from cudaops.domain.execution import CompileFailed, Measurement, Misbehaved, TimeSource
from cudaops.domain.options import JudgeOptions, ReviewOptions

GateName = Literal[
    "hygiene", "plugin", "preprocessed", "compile", "object", "checker", "correctness_captured",
    "correctness_exact", "correctness_perturbed", "repeat", "unchanged_inputs",
    "correctness_domain", "timed_outputs", "clocks", "physical_floor", "whole_program",
    "nvcc_compile", "reference", "isolation", "handed_in", "speedup", "remeasured", "review",
]  # fmt: skip
"""In the order in which a candidate meets them; `cudaops.gates` says which file holds which."""

IsolationLevel = Literal["S0", "S1", "S2", "S3"]
"""How well code that nobody vouches for is confined. S0: not at all. S1: limits on time, memory and
files, no new privileges, killed as a group. S2: the kernel refuses files, sockets and system calls
that the phase does not need. S3: in namespaces of its own as well."""


class Gate(Record):
    """One check of a candidate. A gate that could not run has failed."""

    name: GateName
    passed: bool
    quarantined: bool = False
    """Not passed, and not proven harmful either: a person may release it (`--review`)."""
    summary: str
    """One line a person reads: what was compared and what came out."""
    numbers: dict[str, float] = Field(default_factory=dict)
    """Every number the outcome rests on, thresholds included, units in the names. One that is not
    finite is left out: JSON cannot say it, and `summary` does."""
    seconds: float = 0.0

    @field_validator("numbers")
    @classmethod
    def _finite(cls, numbers: dict[str, float]) -> dict[str, float]:
        return {name: number for name, number in numbers.items() if math.isfinite(number)}

    @property
    def line(self) -> str:
        """Name, outcome and summary in one line."""
        word = "passed" if self.passed else "QUARANTINED" if self.quarantined else "FAILED"
        return f"{self.name} {word}: {self.summary}"


class Comparison(Record):
    """Baseline and candidate timed on one workload by the same clock."""

    workload: str
    weight: float
    """Share of the author's time that this workload stands for, 0-1: launches times the time of
    one, over all timed workloads (`Workbench.shares`)."""
    baseline: Measurement
    candidate: Measurement


class Policy(JudgeOptions, ReviewOptions):
    """Acceptance criteria, fixed before the run and recorded."""

    min_speedup: float = 1.2
    """Baseline time over candidate time; here without the bounds of what a user may ask for."""
    confidence: float = 0.99
    """Level of the interval whose lower end must exceed the bar, for measured times: of a whole
    run, however many candidates it judges (`domain.judge`)."""
    max_error_factor: float = 4.0
    """How many times the baseline's own relative L2 error against the widened run a candidate may
    have. A sum in another order stays within small factors; TF32 is ~1000 times less exact."""
    rtol_program: float = 1e-3
    """Relative tolerance on numbers the whole program prints. Chosen: checksums of sums
    in another order differ by less."""


class Judgement(Record):
    """The decision about one candidate."""

    outcome: Literal["accepted", "provisional", "rejected"]
    reason: str
    """The gate that decided, in one line."""
    gates: tuple[Gate, ...]
    speedup: float | None = None
    """The author's time over the candidate's, of all timed launches together: the harmonic mean of
    the workloads' ratios, each weighted by its share of the author's time. None: no time."""
    speedup_low: float | None = None
    """Lower end of the confidence interval; of a modelled time by its sampled blocks, at 95 %, and
    None where these do alike."""
    speedup_high: float | None = None
    """Upper end; None also where there are too few samples to bound it."""
    time_source: TimeSource | None = None
    isolation: IsolationLevel | None = None
    """How well the candidate was confined while it was judged; None where it never ran."""

    @property
    def quarantined(self) -> tuple[Gate, ...]:
        """Gates that a person would have to release; empty where another gate failed as well."""
        stopped = [g for g in self.gates if not g.passed]
        return tuple(stopped) if all(g.quarantined for g in stopped) else ()

    def gate(self, name: GateName) -> Gate | None:
        """The gate of this name, None where an earlier one ended the judgement."""
        return next((g for g in self.gates if g.name == name), None)


TIE = 0.01
"""Relative difference below which two times of a search count as the same. Chosen: a GPU's medians
of one kernel differ by so much."""


def fine_us(value: float) -> str:
    """Microseconds in four digits, with their unit: a bar may be two per cent away."""
    return f"{value:,.0f} us" if value >= 1000 else f"{value:.4g} us"


class TunedSetting(Record):
    """Values of a rewrite's tune names that were tried, with its result."""

    values: dict[str, int]
    time_us: float | None
    """By the clock of the search; None where it has no time."""
    failure: str | None = None


class WorkloadTime(Record):
    """The author's kernel and a candidate on one workload."""

    workload: str
    share: float
    """`Comparison.weight`, 0-1."""
    baseline_us: float
    candidate_us: float


TechniqueVerdict = Literal["effective", "ineffective", "absent", "not_separable"]
"""effective: slower without it. ineffective: as fast without it, or faster. absent: not really
there: switching it off changes nothing in the machine code, or that holds none of the instructions
by which the technique is known. not_separable: without it the rewrite does not compile, is wrong or
could not be timed."""


class TechniqueSignature(Record):
    """The instructions by which a technique is known, counted in SASS, each once however often it
    is executed."""

    name: str
    """`executors.cuda.signatures`: `128-bit accesses`."""
    author: int
    """In the author's kernel."""
    rewrite: int
    without: int | None = None
    """In the rewrite with the technique switched off; None where that has no machine code."""

    @property
    def line(self) -> str:
        """`128-bit accesses in SASS: author 0, rewrite 12, without it 0`."""
        off = "" if self.without is None else f", without it {self.without}"
        return f"{self.name} in SASS: author {self.author}, rewrite {self.rewrite}{off}"


class Technique(Record):
    """One stated technique of a rewrite, switched off alone."""

    name: str
    """Of its macro, without `TECHNIQUE_`, in lower case."""
    says: str = ""
    """What the rewrite says that it is."""
    verdict: TechniqueVerdict
    factor: float | None = None
    """Time without it over time with it, on the most expensive workload; None: not timed."""
    detail: str = ""
    """Why it could not be separated."""
    signature: TechniqueSignature | None = None
    """None where its name and comment name no known instructions, or there is no SASS."""

    @property
    def line(self) -> str:
        """`float4_loads: effective, 1.32x (128-bit accesses in SASS: author 0, rewrite 12)`."""
        told = "" if self.factor is None else f", {self.factor:.2f}x"
        seen = self.signature.line if self.signature else ""
        why = "; ".join(text for text in (self.detail, seen) if text)
        return f"{self.name}: {self.verdict.replace('_', ' ')}{told}{f' ({why})' if why else ''}"


class Attempt(Record):
    """One candidate that was tried: anti-context for the next."""

    iteration: int
    """1-based."""
    rewrite_id: str
    """`Rewrite.id` of the configuration that was judged."""
    source_id: str
    """`Rewrite.source_id`: what must not be proposed again."""
    title: str
    proposer: str
    family: str | None = None
    """`cudaops.domain.hypothesis.Family`; None where nobody said."""
    tuned: dict[str, int] = Field(default_factory=dict)
    judgement: Judgement
    failure: CompileFailed | Misbehaved | None = None
    baseline_us: float | None = None
    """Of a launch, mean over all timed launches (`domain.judge.mean_us`): over `candidate_us` it is
    the speedup."""
    candidate_us: float | None = None
    times: tuple[WorkloadTime, ...] = ()
    """The same by workload, the most expensive first; empty if no time was measured, and in older
    records."""
    candidate_launched_us: float | None = None
    """On the most expensive workload by CUDA events, which is how a search times rewrites, also
    where `times` are the kernels' own; None in records of before."""
    configurations_tried: int = 1
    settings: tuple[TunedSetting, ...] = ()
    """Every setting of its tune names that was tried; empty in records of before."""
    techniques: tuple[Technique, ...] = ()
    """What a model's rewrite states in macros, each switched off alone; empty where it states none,
    or was rejected."""
    expected_speedup: float | None = None
    """What the planner said before that it would bring, times faster than the author's kernel; None
    where nobody said. Decides nothing."""
    limited_by: str = ""
    """What limits it, by its own profile; empty where it has none."""
    lesson: str
    """One line for the next attempt: what not to repeat."""


ControlName = Literal[
    "zeros", "constant", "not_a_number", "input_copied", "unwritten", "stale", "replayed",
    "half_written", "shuffled", "one_off", "rounded_f32", "rounded_tf32", "rounded_fp16",
    "rounded_bf16", "rounded_e4m3", "operands_f32", "operands_tf32", "operands_fp16",
    "operands_bf16", "operands_e4m3",
]  # fmt: skip
"""A mutant of a result. `unwritten`: what stood in the buffer when the launch began.
`stale`: the contents before the captured launch. `replayed`: the captured launch's result,
whatever the inputs. `one_off`: one element off by a hundredth of its size. `rounded_*`: the result
rounded to that type. `operands_*`: computed from inputs that were rounded to it."""


class Control(Record):
    """One wrong result, compared with every reference as a candidate's would be."""

    name: ControlName
    buffer: str
    """Kernel parameter whose result was replaced."""
    of: str = ""
    """Kernel parameter that was copied, for `input_copied`."""
    outcome: Literal["caught", "missed", "not_applicable"]
    caught_by: str | None = None
    """Workload and input set on which it was refused: `w0 signed`."""
    why: str = ""
    """What the comparison said, or why there was nothing to compare."""


class OutputStatistics(Record):
    """What the baseline writes into one buffer on the captured inputs, without NaN and infinity."""

    buffer: str
    elements: int
    sampled: int
    """Elements that these numbers, and the controls on this buffer, were taken from."""
    least: float | None
    greatest: float | None
    mean: float | None
    std: float | None
    """All four: None where no element is finite."""
    finite_share: float
    """0-1."""
    constant_along: tuple[str, ...] = ()
    """`rows of N = 64`: elements that are equal along a line whose length is a scalar argument."""
    changed_share: float | None = None
    """Share of elements that differ between any two input sets, 0-1; None with one set alone."""


class Qualification(Record):
    """What the oracle of a program is able to see, found once before any candidate is judged."""

    controls: tuple[Control, ...]
    statistics: tuple[OutputStatistics, ...]
    input_sets: int
    """Different input sets of the workload that has fewest."""
    yardstick: bool
    """Whether the baseline ran widened to double on at least one input set of every workload."""
    yardstick_problem: str | None = None
    """Why not."""
    baseline_passes: bool
    """Whether the baseline's own results pass every comparison (A/A)."""
    operands_run: bool = False
    """Whether the baseline ran on rounded inputs for `operands_*`; else those controls are errors
    of the size that rounded inputs give a product of signed numbers, and no run."""
    weak: tuple[str, ...] = ()
    """One sentence for each kind of error that this oracle cannot detect."""
    seconds: float = Field(default=0.0, ge=0.0)

    def control(self, name: ControlName, buffer: str) -> Control | None:
        """The control of this name on this buffer."""
        return next((c for c in self.controls if (c.name, c.buffer) == (name, buffer)), None)

    @property
    def line(self) -> str:
        """How many controls were caught, and whether the oracle is weak, in one line."""
        applied = [c for c in self.controls if c.outcome != "not_applicable"]
        caught = sum(c.outcome == "caught" for c in applied)
        text = f"{caught} of {len(applied)} mutants rejected on {self.input_sets} sets of inputs"
        return f"{text}; the oracle is weak: {'; '.join(self.weak)}" if self.weak else text
