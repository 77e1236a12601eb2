"""What a recipe is: one known optimisation that writes itself into a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cudaops.domain.hypothesis import Family
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload


class Recipe(Protocol):
    """One optimisation. It proposes only for kernels whose whole meaning it has understood."""

    name: str
    """In `Rewrite.proposer` as `recipe:NAME`."""
    title: str
    """A few words a person reads."""
    family: Family
    """Which strategy it follows; memory learns by it."""
    relieves: frozenset[str]
    """Verdict subtypes (`cudaops.cuda.subtypes`) that it is a remedy for."""

    def propose(
        self,
        program: Program,
        kernel: Kernel,
        workloads: Sequence[Workload],
        verdict: Verdict | None,
    ) -> tuple[Rewrite, ...]:
        """Rewrites that compute the same function; none where the kernel is not understood."""

    def seeds(self, rewrite: Rewrite) -> tuple[Mapping[str, int], ...]:
        """Tune values worth measuring first, best guess first."""

    def refusal(self, rewrite: Rewrite) -> str | None:
        """Why these tune values cannot work, known without compiling; None where they may."""
