"""Which integer work is only address arithmetic, and how much of it is left in a loop."""

from __future__ import annotations

import re

from cudaops.timemodel import costs as cost
from cudaops.timemodel.gimple import Function, Statement, ssa_names
from cudaops.timemodel.instructions import Op
from cudaops.timemodel.types import bytes_of, is_reference

_AFFINE = re.compile(r"^(?:\(.*\) \S+|-?\S+|&?\S+ [-+*] \S+|\S+ << \d+)$")
_INTEGER = re.compile(r"\b(int|long|short|char|sizetype|unsigned|size_t)\b|\*$")


def address_only(function: Function) -> set[str]:
    """SSA names whose every use ends in the address of a memory access."""
    candidates: set[str] = set()
    users: dict[str, list[tuple[Statement | None, str]]] = {}
    for block in function.blocks.values():
        for phi in block.phis:
            for source, _ in phi.sources:
                users.setdefault(source, []).append((None, ""))
        for s in block.statements:
            if s.target_name and not is_reference(s.value) and _is_integer(function, s.target_name):
                candidates.add(s.target_name)
            for name in s.uses:
                users.setdefault(name, []).append((s, _role(s, name)))
    changed = True
    while changed:
        changed = False
        for name in list(candidates):
            if not all(
                user is not None and (role == "address" or user.target_name in candidates)
                for user, role in users.get(name, [])
            ):
                candidates.discard(name)
                changed = True
    return candidates


def _is_integer(function: Function, name: str) -> bool:
    kind = function.type_of(name)
    return bool(_INTEGER.search(kind)) or (
        bytes_of(kind) in (4, 8) and kind not in ("float", "double")
    )


def _role(s: Statement, name: str) -> str:
    if s.target and s.target_name is None and name in ssa_names(s.target):
        return "address"
    if is_reference(s.value) and name in ssa_names(s.value):
        return "address"
    if s.target_name is None and re.search(r"atomic\w* \(" + re.escape(name) + r"\b", s.value):
        return "address"
    return "value"


def reduced_addresses(
    ops: list[Op], function: Function, body: set[int], only_address: set[str]
) -> None:
    """Take affine address arithmetic out of a loop's block; nvcc keeps a running pointer instead.

    What is left is one addition an access whose step is not a constant. Changes `ops` in place.
    """
    inside = {
        s.target_name: s
        for n in body
        for s in function.blocks[n].statements
        if s.target_name is not None
    }
    counters = {phi.target for n in body for phi in function.blocks[n].phis}
    affine: dict[str, tuple[bool, bool]] = {}
    for op in ops:
        name = op.statement.target_name
        if name in only_address and _walk(name, inside, counters, affine)[0]:
            op.mix, op.latency = cost.FREE, 0.0
    charged: set[str] = set()
    for op in ops:
        if not (op.loads or op.stores):
            continue
        for name in _address_names(op.statement):
            straight, variable_step = _walk(name, inside, counters, affine)
            if straight and variable_step and name not in charged:
                op.mix += cost.ONE_IMAD
                charged.add(name)


def _address_names(s: Statement) -> list[str]:
    places = [s.target] if s.target and s.target_name is None else []
    places += [s.value] if is_reference(s.value) else []
    return [n for p in places for n in ssa_names(p)]


def _walk(
    name: str, inside: dict[str, Statement], counters: set[str], known: dict[str, tuple[bool, bool]]
) -> tuple[bool, bool]:
    """Whether a value is affine in the loop's counters, and whether its step is not a constant."""
    if name in counters or name not in inside:
        return True, False
    if name in known:
        return known[name]
    known[name] = (False, False)
    s = inside[name]
    if is_reference(s.value) or not _AFFINE.match(s.value):
        return known[name]
    parts = [_walk(n, inside, counters, known) for n in s.uses]
    straight = all(p[0] for p in parts)
    moving = [n for n in s.uses if _moves(n, inside, counters, set())]
    product = " * " in s.value and len(s.uses) == 2
    if product and len(moving) == 2:
        straight = False
    step = any(p[1] for p in parts) or (product and len(moving) == 1)
    known[name] = (straight, straight and step)
    return known[name]


def _moves(name: str, inside: dict[str, Statement], counters: set[str], seen: set[str]) -> bool:
    if name in counters:
        return True
    if name not in inside or name in seen:
        return False
    seen.add(name)
    return any(_moves(n, inside, counters, seen) for n in inside[name].uses)
