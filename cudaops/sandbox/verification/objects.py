"""Gate `object`: what was compiled, as its files tell it, beside the same unit without the rewrite.

| where | what is looked at |
|---|---|
| `cpu` | g++'s object: nothing runs by itself, calls the host or takes a name of ours |
| nvcc is there | PTX: state, clocks, precision, calls, of what the plan's kernels can reach |
| `cpu` without nvcc | the same words in the preprocessed text, and the summary says so |
| `cuda` | the cubin: it holds the kernels and variables that its PTX holds, and no others |

A look that applies and cannot be made fails the gate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cudaops.cuda.ptx import Findings, PtxError, findings
from cudaops.domain.execution import Compiled, CompileFailed
from cudaops.domain.judgement import Gate, Precision
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import EnvironmentFailure
from cudaops.executors.base import Executor
from cudaops.program.hygiene_facts import text_facts
from cudaops.program.reroute import device_view_files
from cudaops.sandbox.toolchain import find_nvcc
from cudaops.sandbox.verification.objects_device import (
    NotCompiled,
    look_at_cubin,
    look_at_device_code,
)
from cudaops.sandbox.verification.objects_elf import ElfError
from cudaops.sandbox.verification.objects_host import look_at_object
from cudaops.sandbox.verification.preprocessed import NotPreprocessed, text_by_gxx
from cudaops.sandbox.workbench import Workbench


class ObjectLook(NamedTuple):
    """What one kind of compiled file told."""

    findings: Findings
    numbers: dict[str, float]
    said: tuple[str, ...] = ()
    """What a reader of a passed gate should know."""


class CannotLook(Exception):
    """What was compiled cannot be looked at; says why in one line."""


CANNOT_LOOK = (
    CannotLook, NotCompiled, NotPreprocessed, ElfError, PtxError, EnvironmentFailure,
)  # fmt: skip
"""Why there may be nothing to look at."""


def object_gate(bench: Workbench, rewrite: Rewrite, compiled: Compiled) -> Gate:
    """Look at what the compilers made of a rewrite.

    Failed: it holds what no rewrite may. Quarantined: it does what honest code seldom needs and the
    baseline does not; the summary says what a person should look at.
    """
    started = time.monotonic()
    try:
        looks = _looks(bench, compiled)
    except CANNOT_LOOK as problem:
        summary = f"cannot be looked at: {problem}"
        gate = Gate(name="object", passed=False, summary=summary)
    else:
        gate = _gate(looks)
    return gate.model_copy(update={"seconds": time.monotonic() - started})


def _looks(bench: Workbench, compiled: Compiled) -> tuple[ObjectLook, ...]:
    if compiled.draft:
        raise CannotLook(f"{compiled.compiler} made a draft, on which nothing is accepted")
    baseline = bench.compile(None)
    if isinstance(baseline, CompileFailed):
        raise CannotLook(f"the baseline does not compile: {baseline.placed}")
    executor, allowed = bench.executor, bench.policy.allow_precision
    return tuple(looks_of(executor, compiled, baseline, bench.sm_arch, allowed))


def looks_of(
    executor: Executor,
    compiled: Compiled,
    baseline: Compiled,
    sm_arch: str,
    allowed: Precision | None,
) -> Iterator[ObjectLook]:
    """Every look that applies to a rewrite's unit where it was built. Raises `CANNOT_LOOK`."""
    by, cache, rewrite = executor.name, executor.cache, compiled.unit.rewrite
    if rewrite is None:
        raise CannotLook("it is the baseline itself")
    if by == "cpu":
        host = look_at_object(compiled, baseline, rewrite)
        yield ObjectLook(Findings(host.refused, (), ()), host.numbers)
    if by == "cpu" and find_nvcc() is None:
        yield _look_at_words(rewrite, compiled, cache, allowed)
        return
    yield _look_at_ptx(compiled, baseline, sm_arch, cache, allowed)
    if by == "cuda":
        cubin = look_at_cubin(compiled, baseline, cache)
        yield ObjectLook(Findings(cubin.refused, (), ()), cubin.numbers)


def _look_at_ptx(
    compiled: Compiled, baseline: Compiled, sm_arch: str, cache: Path, allowed: Precision | None
) -> ObjectLook:
    look = look_at_device_code(compiled.unit, baseline.unit, sm_arch, cache, allowed)
    names = ", ".join(f"`{n}`" for n in look.unlaunched)
    said = (f"its plan does not launch {names}",) if names else ()
    return ObjectLook(look.findings, look.numbers, said)


def _look_at_words(
    rewrite: Rewrite, compiled: Compiled, cache: Path, allowed: Precision | None
) -> ObjectLook:
    # As written too: on a processor `__sinf` is a macro for sinf.
    candidate = text_facts([text_by_gxx(compiled.unit, rewrite, cache).text, rewrite.source])
    authors = text_facts(device_view_files(compiled.unit.program, dialect="cuda").values())
    found = findings(candidate, authors, allowed)
    said = "no nvcc here: device code was not looked at, its words were"
    return ObjectLook(found, {"written_variables": _count_state(candidate)}, (said,))


def _count_state(facts: frozenset[tuple[str, str]]) -> float:
    return float(sum(kind == "state" for kind, _ in facts))


def _gate(looks: tuple[ObjectLook, ...]) -> Gate:
    refused = [line for look in looks for line in look.findings.refused]
    suspicious = [line for look in looks for line in look.findings.suspicious]
    said = [line for look in looks for line in look.said]
    allowed = sorted({p for look in looks for p in look.findings.allowed})
    numbers = {name: value for look in looks for name, value in look.numbers.items()}
    if refused:
        summary = refused[0]
    elif suspicious:
        summary = "; ".join(suspicious)
    else:
        summary = "nothing runs by itself, keeps state or computes less exactly than the baseline"
    if allowed and not refused:
        said.append(f"{', '.join(allowed)}: allowed by --allow-precision")
    numbers |= {"refused": float(len(refused)), "suspicious": float(len(suspicious))}
    return Gate(
        name="object",
        passed=not refused and not suspicious,
        quarantined=bool(suspicious) and not refused,
        summary="; ".join([summary, *said]),
        numbers=numbers,
    )
