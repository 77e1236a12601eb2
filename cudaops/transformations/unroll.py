"""How far the compiler unrolls a loop: further, fully, or not at all."""

from __future__ import annotations

import re

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import calls_in
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.bit_loops import computes_constants, most_turns, unrolled_by_bits
from cudaops.transformations.draft import FILE, Draft, Step
from cudaops.transformations.loops import Placed, hottest, loop_of, size_of

_LOOPS = 3
_MOST_SETTINGS = 6
_MOST_TRIPS, _LARGEST = 64, 1500
"""Iterations, and operations of all of them together, that are worth unrolling fully."""
_ROLLED = 150
"""Operations of all iterations beyond which an instruction cache may prefer the loop."""
_PRAGMA = re.compile(rb"[ \t]*#[ \t]*pragma[ \t]+(unroll|nounroll)\b[^\n]*\n")
_PASSED = re.compile(rb"[ \t]*(//[^\n]*|/\*[^\n]*\*/[ \t]*)?\n")


class Unroll:
    """`#pragma unroll` above one of the hottest loops, in the kernel or in a function it calls.

    Legal: a pragma changes no meaning. The compiler keeps the order of everything, so that what it
    gains is loads sent together, fewer branches, and indices of private arrays that are constant;
    chains of additions stay chains (see `accumulators`). `bits`: a loop over the bits of an integer
    with the bound that it has (`bit_loops`).
    """

    name = "unroll"
    title = "loop unrolling"
    family: Family = "unrolling"
    relieves = frozenset({
        "stall_long_scoreboard", "stall_branch", "issue_slots", "integer_pipe", "stall_wait",
        "low_parallelism", "occupancy_grid", "register_spills", "occupancy_registers",
        "stall_short_scoreboard",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """For the hottest loops: what nvcc does not do by itself."""
        loops = hottest(draft, functions=True)
        plain = [x for x in loops if not x.function or x.function.isidentifier()]
        found = [
            placed.setting | {"factor": factor}
            for placed in plain[:_LOOPS]
            for factor in _factors(draft, placed)
            if placed.function or _is_new(draft, placed, factor)
        ]
        return tuple(found[:_MOST_SETTINGS])

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """The pragma, in place of one that stands there."""
        name, factor = str(setting.get("function", "")), setting["factor"]
        draft, function = _function(draft, name)
        edited = draft.edited(function, _unrolled(draft, function, setting["loop"], factor))
        how = {"full": "fully", "bits": "fully, one iteration per bit", 1: "not at all"}.get(
            factor, f"by {factor}"
        )
        place = f"in {function.name} " if name else ""
        says = f"Loop {int(setting['loop']) + 1} {place}is unrolled {how}."
        return edited.stepped(Step(self.name, setting, says))


def _is_new(draft: Draft, placed: Placed, factor: int | str) -> bool:
    try:
        _unrolled(draft, draft.form.kernel, placed.number, factor)
    except NotUnderstood:
        return False
    return True


def _factors(draft: Draft, placed: Placed) -> tuple[int | str, ...]:
    try:
        facts = [x for x in draft.facts.loops if x.where == placed.node.where]
    except NotUnderstood:  # a kernel that is too large to follow
        facts = []
    counts = {x.count.constant if x.count is not None else None for x in facts}
    size = max(size_of(placed.node.body, draft.form), 1)
    trips = counts.pop() if len(counts) == 1 else None
    if trips is None:
        bits: tuple[int | str, ...] = ("bits",) if _is_over_bits(draft, placed, size) else ()
        return (*bits, 8, 2, 1) if size < _LARGEST // 8 else (1,)
    if trips * size <= _ROLLED and trips <= 16:
        return ()  # as nvcc does
    full: tuple[int | str, ...] = ("full",) if trips <= _MOST_TRIPS else (8,)
    return (*full, 4, 1) if trips * size <= _LARGEST else (4, 1)


def _is_over_bits(draft: Draft, placed: Placed, size: int) -> bool:
    """Whether it is unrolled with a gain that a factor does not bring."""
    function = draft.form.function(placed.function) if placed.function else draft.form.kernel
    try:
        turns = 0 if function is None else most_turns(draft, placed.node, function)
    except NotUnderstood:
        return False
    assert function is not None
    return turns * size <= _LARGEST and computes_constants(placed.node, function)


def _unrolled(draft: Draft, function: s.Function, number: int | str, factor: int | str) -> str:
    if factor != "bits":
        return _with_pragma(draft, function, number, factor)
    node = loop_of(function, number)
    text = draft.program.main.text.encode()
    if node.where is None or node.where.file != FILE:
        raise NotUnderstood("the loop is not in the kernel")
    if _pragma_above(text, text.rfind(b"\n", 0, node.where.start) + 1) is not None:
        raise NotUnderstood("a loop with #pragma unroll")
    return unrolled_by_bits(draft, function, node)


def _function(draft: Draft, name: str) -> tuple[Draft, s.Function]:
    """The kernel, or a function that the draft has a copy of from here on, as it has of all that
    call it."""
    if not name:
        return draft, draft.form.kernel
    if draft.form.function(name) is None:
        raise NotUnderstood(f"no function {name}")
    draft = _with_callers(draft, name)
    owned = draft.with_own_copy_of(name)
    if owned is draft:
        function = draft.form.function(name)
    else:
        mine = {f.name for f in draft.form.functions}
        new = (f for f in owned.form.functions if f.where and f.where.file == FILE)
        function = next((f for f in new if f.name not in mine), None)
    if function is None:
        raise NotUnderstood(f"no copy of {name}")
    return owned, function


def _with_callers(draft: Draft, name: str) -> Draft:
    """With copies of the author's functions that a function is called by, outer ones first: those
    that are not in the draft would go on with the author's own."""
    waiting, callers = [name], list[str]()
    while waiting:
        inner = waiting.pop()
        for f in draft.form.functions:
            if inner in calls_in(f.body) and f.name not in (*callers, name):
                callers.append(f.name)
                waiting.append(f.name)
    for caller in reversed(callers):
        function = draft.form.function(caller)
        if function is not None and function.where and function.where.file != FILE:
            draft = draft.with_own_copy_of(caller)
    return draft


def _with_pragma(draft: Draft, function: s.Function, number: int | str, factor: int | str) -> str:
    """The function's text with the pragma above the loop."""
    node, whole = loop_of(function, number), function.where
    if node.where is None or whole is None or node.where.file != FILE:
        raise NotUnderstood("the loop is not in the kernel")
    text, at = draft.program.main.text.encode(), node.where.start
    if not re.match(rb"(for|while)\b", text[at : at + 6]) or not whole.start <= at < whole.end:
        raise NotUnderstood("a loop from a macro expansion")
    line = text.rfind(b"\n", 0, at) + 1
    indent = re.match(rb"[ \t]*", text[line:at])
    assert indent is not None
    pragma = b"#pragma unroll" if factor == "full" else b"#pragma unroll %d" % int(factor)
    if indent.end() < at - line:
        pragma = b"\n" + indent.group() + pragma + b"\n" + indent.group() + b"    "
        return (text[whole.start : at] + pragma + text[at : whole.end]).decode()
    old = _pragma_above(text, line)
    if old is not None and b" ".join(text[old[0] : old[1]].split()) == pragma:
        raise NotUnderstood("already unrolled this way")
    start, end = old or (line, line)
    new = indent.group() + pragma + b"\n"
    return (text[whole.start : start] + new + text[end : whole.end]).decode()


def _pragma_above(text: bytes, line: int) -> tuple[int, int] | None:
    """Where a pragma stands that is about the loop which begins in a line."""
    while line > 0:
        above = text.rfind(b"\n", 0, line - 1) + 1
        if _PRAGMA.fullmatch(text, above, line):
            return above, line
        if b"_Pragma" in text[above:line]:
            raise NotUnderstood("a _Pragma")
        if not _PASSED.fullmatch(text, above, line):
            return None
        line = above
    return None
