"""Loops of a control-flow graph, and how often nvcc repeats a body for the way in which its loop
counts or as its author's pragma asks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from cudaops.timemodel import costs as cost
from cudaops.timemodel.gimple import (
    BINARY,
    GimpleFunction,
    GimpleStatement,
    Phi,
    Place,
    ssa_names,
)
from cudaops.timemodel.work import Mix

FULL = 16
"""Of a signed counter with a constant step: nvcc's own limit, where the body is small enough."""
SOME = 4
"""Of an unsigned or 64-bit counter with a constant step other than 1, of a signed one with a step
that a launch decides, and of each of these and of `FULL` below `#pragma unroll` without a number.
Measured: SASS of one loop each, `sum += a[i] * d[i]` (nvcc 13.0.88, sm_90)."""
_COUNTDOWN = "ivtmp"
"""How g++ names a counter of its own, where the number of iterations is a constant."""
NONE = 1
"""Of an unsigned counter with a step that a launch decides (`i += blockDim.x`, whatever the type of
`i`): it may wrap, so that nobody knows the number of iterations; likewise of a loop that ends by
its data, by several ways out or by a shifted counter. Measured: likewise."""


_PRAGMA = re.compile(
    r"^[ \t]*#[ \t]*pragma[ \t]+(?P<no>no)?unroll(?P<count>[ \t]+\d+|[ \t]*\([ \t]*\d+[ \t]*\))?"
    r"[ \t]*(?://[^\n]*)?\n"
    r"(?=(?:[ \t]*(?://[^\n]*|/\*[^\n]*\*/[ \t]*)?\n)*[ \t]*(?:for|while|do)\b)",
    re.MULTILINE,
)
"""Above a loop. A number that is an expression is not read."""
_MOST_GCC = 65534
"""Source: GCC manual, "Loop-Specific Pragmas"."""


def unroll_pragmas(texts: Mapping[str, str]) -> dict[Place, int]:
    """How often the author's pragmas ask for the bodies of loops.

    nvcc follows a number whatever the loop counts with, and does not unroll behind `1` and
    `nounroll`; see `SOME` for a pragma without a number. Measured as there.

    Args:
        texts: Sources by path.

    Returns:
        By the last part of the path and the line where the loop begins.
    """
    found: dict[Place, int] = {}
    for path, text in texts.items():
        for pragma in _PRAGMA.finditer(text):
            loop = re.compile(r"\b(?:for|while|do)\b").search(_uncommented(text, pragma.end()))
            assert loop is not None
            line = 1 + text.count("\n", 0, pragma.end() + loop.start())
            found[path.rpartition("/")[2], line] = _asked(pragma) or SOME
    return found


def _uncommented(text: str, start: int) -> str:
    """What follows, comments blank."""
    return re.sub(r"//[^\n]*|/\*[^\n]*\*/", lambda found: " " * len(found.group()), text[start:])


def _asked(pragma: re.Match[str]) -> int | None:
    if pragma["no"]:
        return NONE
    return max(int(pragma["count"].strip(" \t()")), NONE) if pragma["count"] else None


def with_gcc_pragmas(text: str) -> str:
    """The source with its numbered pragmas in g++'s words, on the same lines: g++ then leaves in a
    loop what nvcc leaves in one."""

    def spelled(pragma: re.Match[str]) -> str:
        asked = _asked(pragma)
        if asked is None:
            return pragma.group()
        return f"#pragma GCC unroll {min(asked, _MOST_GCC)}\n"

    return _PRAGMA.sub(spelled, text)


class Asked(NamedTuple):
    """What the author asks of nvcc."""

    pragmas: Mapping[Place, int] = MappingProxyType({})
    """As `unroll_pragmas` finds them."""
    branching: frozenset[Mix] = cost.BRANCHING
    """Work that nothing is moved past: `cost.BRANCHING` or `cost.FAST_BRANCHING`."""


NOTHING_ASKED = Asked()


def most_copies(
    function: GimpleFunction,
    phis: Sequence[Phi],
    body: Sequence[GimpleStatement],
    tests: Sequence[GimpleStatement],
) -> int:
    """The most.

    Args:
        function: Whose loop it is.
        phis: Of its header.
        body: Its statements.
        tests: The conditions that leave it.
    """
    if len(tests) != 1:
        return NONE
    made = {s.target_name: s for s in body if s.target_name}
    carried = {phi.target: source for phi in phis for source, _ in phi.sources if source in made}
    asked = _behind(ssa_names(tests[0].text), made, set(carried))
    counts = [
        _of_counter(function, phi, source, made)
        for phi, source in carried.items()
        if phi in asked or source in asked
    ]
    return max(counts, default=NONE)


def _behind(names: Sequence[str], made: Mapping[str, GimpleStatement], stops: set[str]) -> set[str]:
    """These names and what they are made of in the body, up to what is carried round."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            if name in made and name not in stops:
                pending += made[name].uses
    return found


def _of_counter(
    function: GimpleFunction, phi: str, source: str, made: Mapping[str, GimpleStatement]
) -> int:
    """Of a value that is `source` in the next iteration where it is `phi` in this one."""
    step, name = made[source], source
    while step.value.startswith("("):  # a cast
        inner = step.value.rpartition(" ")[2]
        if inner not in made:
            return NONE
        step, name = made[inner], inner
    parts = BINARY.match(step.value)
    if parts is None or parts[2] not in "+-":
        return NONE
    others = [part for part in (parts[1], parts[3]) if not _is(part, phi, made)]
    if len(others) != 1:
        return NONE
    is_constant = not ssa_names(others[0]) and others[0].lstrip("-").isdigit()
    kind = function.type_of(name)
    if name.startswith(_COUNTDOWN):
        return FULL
    if kind.endswith("*"):
        return FULL if is_constant else SOME
    is_unsigned = "unsigned" in kind
    if is_constant:
        by_one = others[0].lstrip("-") == "1" and "long" not in kind
        return SOME if is_unsigned and step is made[source] and not by_one else FULL
    return NONE if is_unsigned else SOME


def _is(part: str, phi: str, made: Mapping[str, GimpleStatement]) -> bool:
    """Whether an operand is the carried value, cast or not."""
    while part in made and made[part].value.startswith("("):
        part = made[part].value.rpartition(" ")[2]
    return part == phi


def reverse_postorder(items: list[int], edges: dict[int, list[int]]) -> list[int]:
    """Nodes that the first one reaches, each ahead of what only it leads to."""
    if not items:
        return []
    order: list[int] = []
    seen = {items[0]}
    stack: list[tuple[int, int]] = [(items[0], 0)]
    while stack:
        node, position = stack[-1]
        following = edges[node]
        if position < len(following):
            stack[-1] = (node, position + 1)
            # The last successor first: a loop's body then stands before what follows the loop.
            child = following[len(following) - 1 - position]
            if child not in seen:
                seen.add(child)
                stack.append((child, 0))
        else:
            order.append(node)
            stack.pop()
    return order[::-1]


def natural_loops(items: list[int], edges: dict[int, list[int]]) -> dict[int, set[int]]:
    """Nodes of each loop by its header, loops of one header as one."""
    order = reverse_postorder(items, edges)
    position = {n: i for i, n in enumerate(order)}
    before: dict[int, list[int]] = {n: [] for n in order}
    for n in order:
        for s in edges[n]:
            before[s].append(n)
    idom = _dominators(order, position, before)
    bodies: dict[int, set[int]] = {}
    for n in order:
        for header in edges[n]:
            if not _dominates(header, n, idom):
                continue
            body = bodies.setdefault(header, {header})
            stack = [n]
            while stack:
                x = stack.pop()
                if x not in body:
                    body.add(x)
                    stack += before[x]
    return bodies


def _dominators(
    order: list[int], position: dict[int, int], before: dict[int, list[int]]
) -> dict[int, int]:
    idom = {order[0]: order[0]} if order else {}
    changed = True
    while changed:
        changed = False
        for n in order[1:]:
            known = [p for p in before[n] if p in idom]
            if not known:
                continue
            new = known[0]
            for other in known[1:]:
                while new != other:
                    while position[other] > position[new]:
                        other = idom[other]
                    while position[new] > position[other]:
                        new = idom[new]
            if idom.get(n) != new:
                idom[n] = new
                changed = True
    return idom


def _dominates(a: int, b: int, idom: dict[int, int]) -> bool:
    while b != a and idom.get(b, b) != b:
        b = idom[b]
    return a == b


def innermost_loops(items: list[int], bodies: dict[int, set[int]]) -> dict[int, int]:
    """Header of the smallest loop that each node is in."""
    by_size = sorted(bodies.items(), key=lambda item: len(item[1]), reverse=True)
    return {n: header for header, body in by_size for n in body if n in set(items)}
