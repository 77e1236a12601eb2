"""Gates that look at what compilers made, where the compilers are on another machine.

The `cpu` and `cuda` executors build on this machine, so gates open what was built. An executor that
builds elsewhere has the look taken there and hands over what was seen; judging stays here.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, runtime_checkable

from cudaops.cuda.ptx import Findings
from cudaops.domain.execution import Compiled, Unit
from cudaops.domain.judgement import Precision
from cudaops.program.hygiene_preprocessed import CandidateText
from cudaops.sandbox.executors.base import Executor

Machinery = Literal["cpu", "cuda"]


class TextView(NamedTuple):
    """A candidate's text as one compiler sees it."""

    compiler: str
    candidate: CandidateText


class ObjectLook(NamedTuple):
    """What one kind of compiled file told."""

    findings: Findings
    numbers: dict[str, float]
    said: tuple[str, ...] = ()
    """What a reader of a passed gate should know."""


class NotPreprocessed(Exception):
    """There is no text to look at; says why in one line."""


class PreprocessorRefused(NotPreprocessed):
    """The preprocessor does not take the text: a header is missing, a condition is none."""


class CannotLook(Exception):
    """What was compiled cannot be looked at; says why in one line."""


@runtime_checkable
class LooksElsewhere(Protocol):
    """An executor whose compilers are not on this machine."""

    @property
    def behind(self) -> Machinery:
        """Whose machinery works there."""

    def texts(self, unit: Unit, sm_arch: str) -> list[TextView]:
        """`preprocessed.views_of` there. Raises NotPreprocessed, EnvironmentFailure."""

    def object_looks(
        self, compiled: Compiled, baseline: Compiled, sm_arch: str, allowed: Precision | None
    ) -> tuple[ObjectLook, ...]:
        """`objects.looks_of` there. Raises CannotLook, EnvironmentFailure."""


def machinery(executor: Executor) -> Machinery:
    """Whose machinery compiles and runs: `remote` names a way to get there, not what is there."""
    if isinstance(executor, LooksElsewhere):
        return executor.behind
    return "cuda" if executor.name == "cuda" else "cpu"
