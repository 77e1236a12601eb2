"""Accesses of a kernel in words, for a person or a model: what is read where, and how far apart."""

from __future__ import annotations

from collections.abc import Sequence

from cudaops.domain.program import Kernel, Program
from cudaops.domain.run import MOST_ACCESSES, AccessSummary
from cudaops.domain.workload import Workload
from cudaops.program.analysis.facts import Access, KernelFacts, Loop
from cudaops.program.analysis.intervals import of_polynomial
from cudaops.program.analysis.kernel import analyse
from cudaops.program.analysis.polynomials import Atom, Polynomial, Symbol, number, symbol
from cudaops.program.analysis.values import Launched
from cudaops.program.front_end import kernel_form
from cudaops.program.syntax import NotUnderstood, plain_name

_ANY_TRIPS = 2**27
"""A bound that an `int` has anyway says nothing of a loop, in steps of up to sixteen either."""
_LONGEST_COUNT = 30
"""Characters of a loop's trips as a formula; a longer one is shown as an interval."""


def summarise(
    program: Program, kernel: Kernel, workloads: Sequence[Workload]
) -> tuple[AccessSummary, ...]:
    """Every access to global, shared and module memory, in the text's order, each place once.

    Steps and trips are those of the first workload, the hottest. Empty for a kernel that clang
    cannot read, or that is too large to follow.
    """
    try:
        form = kernel_form(program, kernel, workloads[0].callee if workloads else None)
        facts = analyse(form, Launched.by(workloads[:1]) if workloads else None)
    except NotUnderstood:
        return ()
    texts = {file.path: file.text.encode() for file in program.files}
    found: dict[AccessSummary, None] = {}
    for access in facts.accesses:
        if access.space != "local":
            where = access.where
            line = texts[where.file].count(b"\n", 0, where.start) + 1 if where else None
            found[_summary(access, facts, line)] = None
    if len(found) <= MOST_ACCESSES:
        return tuple(found)
    first = sorted(found, key=lambda one: one.kind == "read")[:MOST_ACCESSES]
    return tuple(one for one in found if one in first)


def facts_of_launch(program: Program, kernel: Kernel, workload: Workload) -> KernelFacts | None:
    """What the workload's launch does with memory; None for a kernel that clang cannot read, or
    that is too large to follow."""
    try:
        form = kernel_form(program, kernel, workload.callee)
        return analyse(form, Launched.by((workload,)))
    except NotUnderstood:
        return None


def is_idempotent(program: Program, kernel: Kernel) -> bool:
    """Whether that is known of a kernel (`KernelFacts.is_idempotent`) whatever it is launched with;
    of templates it is not."""
    if kernel.template_parameters:
        return False
    try:
        return analyse(kernel_form(program, kernel)).is_idempotent
    except NotUnderstood:
        return False


def _summary(access: Access, facts: KernelFacts, line: int | None) -> AccessSummary:
    return AccessSummary(
        kind=access.kind,
        array=(access.array or "?") + access.member,
        space=access.space,
        element=access.type,
        index=_index(access),
        step=_step(access, facts),
        loops=tuple(_loop(loop, access, facts) for loop in access.loops),
        is_conditional=bool(access.guards[len(access.loops) :]),
        line=line,
    )


def _index(access: Access) -> str:
    value = access.index if access.index is not None else access.offset_bytes
    if value is None:
        return "?"
    text = _readable(value).text(plain_name)
    return text if access.index is not None else f"({text}) bytes"


def _readable(value: Polynomial) -> Polynomial:
    """With a thread's place in the grid as one name, where nothing else tells its block."""
    for axis in "xyz":
        start = symbol(f"blockIdx.{axis}") * symbol(f"blockDim.{axis}")
        thread, block = Symbol(f"threadIdx.{axis}"), Symbol(f"blockIdx.{axis}")
        placed = value.replace({thread: symbol(f"at.{axis}") - start})
        if value.has(thread) and not placed.has(block) and not placed.has(thread):
            value = placed
    return value


def _bound(value: Polynomial, facts: KernelFacts) -> Polynomial:
    """With what the launch gives as numbers."""
    known: dict[Atom, Polynomial] = {}
    for name, unknown in facts.unknowns.items():
        if unknown.interval.constant is not None:
            known[Symbol(name)] = number(unknown.interval.constant)
    return value.replace(known)


def _step(access: Access, facts: KernelFacts) -> str:
    """How far apart neighbouring threads of x touch memory."""
    if access.offset_bytes is None:
        return "not known"
    scattered = {
        unknown.array or plain_name(name)
        for name, unknown in facts.unknowns.items()
        if "threadIdx.x" in unknown.depends and name != "threadIdx.x" and "lane" not in name
        if access.offset_bytes.has(Symbol(name))
    }
    if scattered:
        return "by " + ", ".join(f"`{name}`" for name in sorted(scattered))
    stride = access.stride_bytes("threadIdx.x")
    if stride is None:
        return "irregular"
    apart = _bound(stride, facts)
    if apart.constant == 0:
        return "same"
    if apart.constant is not None and apart.constant == access.element_bytes:
        return "adjacent"
    return f"{apart.text(plain_name)} B apart"


def _follows(access: Access, name: str, facts: KernelFacts) -> bool:
    """Whether a value that was read or chosen, and depends on this, is in the offset."""
    assert access.offset_bytes is not None
    return any(
        name in unknown.depends and key != name and access.offset_bytes.has(Symbol(key))
        for key, unknown in facts.unknowns.items()
    )


def _loop(loop: Loop, access: Access, facts: KernelFacts) -> str:
    """`k: 1024x, 4 B`: trips, and by how much the access moves."""
    name = plain_name(loop.variable) or "loop"
    trips = loop.trips
    if loop.count is not None:
        trips = of_polynomial(
            _bound(loop.count, facts), lambda unknown: facts.unknowns[unknown.name].interval
        ).meet(trips)
    known = None if loop.count is None else _bound(loop.count, facts)
    if trips.constant is not None:
        times = f"{trips.constant}x"
    elif known is not None and len(known.text()) <= _LONGEST_COUNT:
        times = f"{known.text(plain_name)} x"
    elif trips.high is not None and trips.high < _ANY_TRIPS:
        times = f"{trips.text()}x"
    else:
        times = "?x"
    stride = access.stride_bytes(loop.symbol.name)
    if stride is None or _follows(access, loop.symbol.name, facts):
        return f"{name}: {times}"
    moved = _bound(stride, facts)
    return f"{name}: {times}, {moved.text(plain_name)} B"
