"""What a kernel is to the GPU: its machine instructions, counted by class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import Field

from cudaops.domain.base import Record


class KernelInstructions(Record):
    """One kernel's SASS, every instruction once, however often it is executed. No padding."""

    kernel: str
    """As its author wrote it."""
    sm_arch: str
    registers: int
    """A thread."""
    spilled_bytes: int
    """A thread: stores and loads of registers that did not fit."""
    counts: dict[str, int] = Field(default_factory=dict)
    """By class (`executors.cuda.sass`); a class that is not there has none."""


class InstructionChange(Record):
    """The author's kernel and what took its place, as instructions."""

    author: tuple[KernelInstructions, ...] = ()
    best: tuple[KernelInstructions, ...] = ()
    """Every kernel of its plan, each once."""
    missing: str = ""
    """Why nothing is known; then both are empty."""

    def rows(self) -> list[tuple[str, str, str]]:
        """What is counted, the author's and the best's: all, then by class, then registers."""
        if self.missing:
            return []
        before, after = _total(self.author), _total(self.best)
        classes = dict.fromkeys((*sorted(before), *sorted(after)))
        return [
            ("instructions", str(before.total()), str(after.total())),
            *((name, str(before[name]), str(after[name])) for name in sorted(classes)),
            (
                "registers a thread",
                _listed(k.registers for k in self.author),
                _listed(k.registers for k in self.best),
            ),
            (
                "bytes spilled a thread",
                _listed(k.spilled_bytes for k in self.author),
                _listed(k.spilled_bytes for k in self.best),
            ),
        ]


def _total(kernels: Sequence[KernelInstructions]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in kernels:
        found.update(one.counts)
    return found


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
