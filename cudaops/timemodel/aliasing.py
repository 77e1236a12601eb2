"""Which loads from global memory may pass a store before them, as nvcc lets them.

Read off its SASS (13.0.88, sm_90): what is loaded through the read-only path (`LDG.E.CONSTANT`)
passes every store. That is what `__ldg` loads; what a `restrict` parameter points to that the
kernel does not write through; and anything the kernel does not write, where every store of it goes
through a `restrict` parameter and nothing is atomic. Any other load waits for the stores before it,
whatever the types and declarations of the two, except for those a constant distance away from it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import PurePosixPath
from typing import NamedTuple

from cudaops.timemodel.gimple import GimpleFunction, GimpleStatement, is_reference, ssa_names
from cudaops.timemodel.instructions import Op
from cudaops.timemodel.work import MemorySite

MOST_COPIES = 16
"""Iterations of a loop whose loads may go out together."""

_OFFSET = re.compile(r" \+ (-?\d+)B\]")
_CAST = re.compile(r"^\([^()]*(?:\([^()]*\))?[^()]*\) (\S+)$")
_SUM = re.compile(r"^(\S+) ([-+]) (\S+)$")
_SCALED = re.compile(r"^(\S+) (\*|<<) (\d+)$")
_NUMBER = re.compile(r"^-?\d+$")


class _Linear(NamedTuple):
    """Sum of SSA names times constants, and of a constant."""

    terms: tuple[tuple[str, int], ...]
    """Sorted by name; none with factor 0."""
    constant: int


class _Place(NamedTuple):
    """Where a reference points: an address in bytes, and members or elements behind it."""

    address: _Linear
    member: str


class GlobalAccesses:
    """What is known of one kernel's accesses to global memory."""

    def __init__(
        self, function: GimpleFunction, ops: Iterable[Op], sites: Sequence[MemorySite]
    ) -> None:
        """`ops` are all of the kernel's; `sites` what their loads and stores are indices of."""
        self._function = function
        self._made: dict[str, GimpleStatement] = {}
        self._joined: dict[str, tuple[str, ...]] = {}
        for block in function.blocks.values():
            self._made |= {s.target_name: s for s in block.statements if s.target_name}
            self._joined |= {p.target: tuple(v for v, _ in p.sources) for p in block.phis}
        self._known: dict[str, _Linear] = {}
        written: set[str] = set()
        self._only_restrict = True
        for op in ops:
            touched = [sites[s] for s in (*op.loads, *op.stores) if sites[s].space == "global"]
            if any(s.atomic for s in touched):
                self._only_restrict = False
            elif op.stores and touched:
                roots = self._roots(op.statement.target or "")
                self._only_restrict &= bool(roots) and all(map(self._restrict, roots))
                written |= roots
        self._written = written

    def read_only(self, load: GimpleStatement) -> bool:
        """Whether the load goes through the read-only path, past every store."""
        file, line = (PurePosixPath(load.place[0]).name, load.place[1]) if load.place else ("", 0)
        if file == _INTRINSICS and line == _ldg_line():
            return True
        roots = self._roots(load.value) if is_reference(load.value) else set[str]()
        if not roots or roots & self._written:
            return False
        parameters = all(r.endswith("(D)") for r in roots)
        return parameters and (self._only_restrict or all(map(self._restrict, roots)))

    def apart(self, load: GimpleStatement, store: GimpleStatement) -> bool:
        """Whether the two touch places a constant distance from each other, never the same."""
        a, b = self._place(load.value), self._place(store.target or "")
        return a is not None and b is not None and a.address.terms == b.address.terms and a != b

    def apart_later(self, load: GimpleStatement, store: GimpleStatement, made: set[str]) -> bool:
        """Whether the loads of a loop's next iterations are so from the store of this one.

        `made`: SSA names that the loop makes, those joined at its head included.
        """
        a, b = self._place(load.value), self._place(store.target or "")
        if a is None or b is None or a.address.terms != b.address.terms:
            return False
        steps = [self._step(n) * f for n, f in a.address.terms if n in made and n in self._joined]
        if any(n in made and not self._step(n) for n, _ in a.address.terms):
            return False
        distance = b.address.constant - a.address.constant
        return a.member != b.member or all(
            distance != turn * sum(steps) for turn in range(1, MOST_COPIES)
        )

    def _step(self, name: str) -> int:
        """What a value joined at a loop's head grows by in each iteration; 0 where not known."""
        for source in self._joined.get(name, ()):
            grown = self._linear(source)
            if grown.terms == ((name, 1),):
                return grown.constant
        return 0

    def _place(self, reference: str) -> _Place | None:
        names = ssa_names(reference)
        if len(names) != 1 or not is_reference(reference):
            return None
        address = self._linear(names[0])
        offset = _OFFSET.search(reference)
        shift = int(offset.group(1)) if offset else 0
        member = reference.rpartition("]" if offset else names[0])[2]
        return _Place(_Linear(address.terms, address.constant + shift), member)

    def _linear(self, name: str) -> _Linear:
        if _NUMBER.match(name):
            return _Linear((), int(name))
        if name not in self._known:
            self._known[name] = _Linear(((name, 1),), 0)
            self._known[name] = self._taken_apart(name)
        return self._known[name]

    def _taken_apart(self, name: str) -> _Linear:
        value = self._made[name].value if name in self._made else ""
        if is_reference(value):
            return _Linear(((name, 1),), 0)
        if ssa_names(value) == [value]:
            return self._linear(value)
        if cast := _CAST.match(value):
            return self._linear(cast.group(1))
        if scaled := _SCALED.match(value):
            factor = int(scaled.group(3))
            return _added(
                _Linear((), 0),
                self._linear(scaled.group(1)),
                factor if scaled.group(2) == "*" else 1 << min(factor, 63),
            )
        if parts := _SUM.match(value):
            sign = 1 if parts.group(2) == "+" else -1
            return _added(self._linear(parts.group(1)), self._linear(parts.group(3)), sign)
        return _Linear(((name, 1),), 0)

    def _roots(self, reference: str) -> set[str]:
        """Pointers that the address may come from: parameters, or what they were read from."""
        found: set[str] = set()
        pending, seen = ssa_names(reference)[:1], set[str]()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self._joined:
                pending += [n for n in self._joined[name] if not _NUMBER.match(n)]
                continue
            terms = [n for n, _ in self._linear(name).terms]
            if terms == [name]:
                found.add(name)
            else:
                pending += [n for n in terms if self._pointer(n)]
        return found

    def _pointer(self, name: str) -> bool:
        return "*" in self._function.type_of(name)

    def _restrict(self, name: str) -> bool:
        declared = self._function.parameters.get(name.rpartition("_")[0], "")
        return name.endswith("(D)") and "restrict" in declared


def _added(a: _Linear, b: _Linear, factor: int) -> _Linear:
    terms = dict(a.terms)
    for name, times in b.terms:
        terms[name] = terms.get(name, 0) + factor * times
    kept = tuple(sorted((n, _signed(f)) for n, f in terms.items() if _signed(f)))
    return _Linear(kept, _signed(a.constant + factor * b.constant))


def _signed(value: int) -> int:
    """In 64 bits: g++ prints what is taken from a `size_t` as a large number that is added."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


_INTRINSICS = "intrinsics.h"


@functools.cache
def _ldg_line() -> int:
    """Where our header defines `__ldg`, whose body is inlined into the author's kernel."""
    text = files("cudaops.executors.cpu").joinpath(f"include/cudaops/{_INTRINSICS}")
    lines = text.read_text("utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.startswith("CUDAOPS_CACHED(__ldg)"))
