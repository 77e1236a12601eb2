"""Qualification: can the oracle tell wrong from right on this very program?"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cudaops.domain.base import Record

ControlName = Literal[
    "zeros", "constant", "not_a_number", "input_copied", "unwritten", "stale", "replayed",
    "half_written", "shuffled", "one_off", "rounded_f32", "rounded_tf32", "rounded_fp16",
    "rounded_bf16", "rounded_e4m3", "operands_f32", "operands_tf32", "operands_fp16",
    "operands_bf16", "operands_e4m3",
]  # fmt: skip
"""A result that is wrong on purpose. `unwritten`: what stood in the buffer when the launch began.
`stale`: what stood there before the captured launch. `replayed`: the captured launch's result,
whatever the inputs. `one_off`: one element off by a hundredth of its size. `rounded_*`: the result
rounded to that type. `operands_*`: computed from inputs that were rounded to it."""


class Control(Record):
    """One wrong result, held against every reference as a candidate's would be."""

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
    """One sentence for each thing that this oracle cannot see; empty where it sees all."""
    seconds: float = Field(default=0.0, ge=0.0)

    def control(self, name: ControlName, buffer: str) -> Control | None:
        """The control of this name on this buffer."""
        return next((c for c in self.controls if (c.name, c.buffer) == (name, buffer)), None)

    @property
    def line(self) -> str:
        """How many controls were caught, and whether the oracle is weak, in one line."""
        applied = [c for c in self.controls if c.outcome != "not_applicable"]
        caught = sum(c.outcome == "caught" for c in applied)
        text = f"{caught} of {len(applied)} wrong results refused on {self.input_sets} input sets"
        return f"{text}; the oracle is weak: {'; '.join(self.weak)}" if self.weak else text
