"""Rewrite: device source and the plan that launches it; never host code."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from cudaops.domain.base import Dim3, Record


class LaunchStep(Record):
    """One `// @launch` directive, its expressions as written."""

    kernel: str
    """Launched expression with template arguments, which may use tune names."""
    grid: tuple[str, ...]
    """One to three expressions: x, y, z."""
    block: tuple[str, ...]
    smem: str = "0"
    """Dynamic shared memory in bytes."""
    args: tuple[str, ...]
    line: int
    """1-based line of the directive in the rewrite's source."""


class Scratch(Record):
    """One `// @scratch NAME bytes=EXPR`: temporary device memory, contents undefined at start."""

    name: str
    size_bytes: str
    """Expression."""


class Tune(Record):
    """One `// @tune NAME = v1, v2, ...`: a preprocessor name the tuner may set."""

    name: str
    values: tuple[int, ...]
    """The first is the default."""


class LaunchPlan(Record):
    """How a rewrite's kernels are launched, in order."""

    launches: tuple[LaunchStep, ...]
    scratch: tuple[Scratch, ...] = ()
    tune: tuple[Tune, ...] = ()
    requires: tuple[str, ...] = ()
    """Conditions on the baseline's arguments and geometry; where one fails the baseline runs."""


class Rewrite(Record):
    """A candidate: one text of CUDA device source with directives in comments."""

    source: str
    plan: LaunchPlan
    proposer: str
    """`recipe:matmul`, `llm:<model id>`, `mcp:<client>`, `user`."""
    title: str
    """A few words: `shared-memory and register tiling`."""
    why: str
    """The reason, in terms of the verdict."""
    tuned: dict[str, int] = Field(default_factory=dict)
    """Values of the tune names. A name that is missing has its first value."""

    @property
    def id(self) -> str:
        """12 hex digits over source and tuned values."""
        text = self.source + repr(sorted(self.values().items()))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def source_id(self) -> str:
        """12 hex digits over the source alone: the same whatever the tuner chose."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:12]

    def values(self) -> dict[str, int]:
        """All tune names with the value in force."""
        return {t.name: self.tuned.get(t.name, t.values[0]) for t in self.plan.tune}

    def tuned_with(self, values: dict[str, int]) -> Rewrite:
        """The same rewrite with these values set."""
        return self.model_copy(update={"tuned": {**self.tuned, **values}})


class BufferValue(Record):
    """A pointer handed to a kernel: into a workload's allocation or a scratch buffer."""

    kind: Literal["buffer"] = "buffer"
    allocation: int | None = None
    scratch: str | None = None
    offset_bytes: int = 0


class NullValue(Record):
    """A null pointer."""

    kind: Literal["null"] = "null"


class NumberValue(Record):
    """A number; the launcher converts it to the kernel's parameter type."""

    kind: Literal["number"] = "number"
    value: int | float


class PlacedPointer(Record):
    """A pointer in the bytes of a structure."""

    at_bytes: int
    to: BufferValue


class RawValue(Record):
    """The bytes of a structure passed by value; `pointers` replace the bytes at their places."""

    kind: Literal["raw"] = "raw"
    raw_hex: str
    pointers: tuple[PlacedPointer, ...] = ()


Value = Annotated[BufferValue | NullValue | NumberValue | RawValue, Field(discriminator="kind")]


class ResolvedLaunch(Record):
    """One launch with every expression evaluated for one workload."""

    step: int
    """Index into `LaunchPlan.launches`; 0 for the baseline."""
    grid: Dim3
    block: Dim3
    dynamic_smem_bytes: int
    values: tuple[Value, ...]
    cluster: Dim3 | None = None
    """Blocks of a cluster, as a rewrite's kernel has it compiled in; None: it has none. That of the
    baseline's kernel is in the program (`program.clusters`)."""


class ResolvedPlan(Record):
    """A plan for one workload: what a runner does."""

    applicable: bool = True
    """False: a `@requires` does not hold, the baseline runs on this workload instead."""
    unmet: str | None = None
    """The `@requires` expression that does not hold."""
    launches: tuple[ResolvedLaunch, ...]
    scratch_bytes: dict[str, int] = Field(default_factory=dict)
