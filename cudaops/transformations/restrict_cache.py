"""What the compiler may know of memory: pointers that do not alias, and data that is only read.

`restrict`: `__restrict__` on every pointer parameter whose allocation no other pointer of the
launch shares, or in which nothing is written (`memory` says what makes it right; that pointers
differ is asked of every launch). Loads may then move over stores, and what is only read goes
through the read-only cache.

`read_only`: `__ldg` where a pointer cannot be told so: members of structures, and arrays that share
an allocation with others that are only read.

`streaming`: `__stcs` for results that are written once by one statement and read by none, so that
they leave the cache first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import targets_in
from cudaops.program.analysis.facts import Access, KernelFacts
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Memory
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.trees import changed

LOADED = frozenset({
    "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned",
    "long long", "unsigned long long", "float", "double", "char2", "char4", "uchar2", "uchar4",
    "short2", "short4", "ushort2", "ushort4", "int2", "int4", "uint2", "uint4", "float2", "float4",
    "double2",
})  # fmt: skip
"""Types that `__ldg` and `__stcs` take. Source: CUDA C++ Programming Guide, read-only data cache
load function."""


class RestrictCache:
    """`__restrict__`, `__ldg` and `__stcs`."""

    name = "restrict_cache"
    title = "aliasing and cache qualifiers"
    family: Family = "other"
    relieves = frozenset({
        "stall_long_scoreboard", "l1_load_throughput", "dram_bandwidth", "l2_bandwidth",
        "issue_slots", "uncoalesced_access",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Those under which something changes."""
        memory = Memory(draft)
        found = []
        if any(True for _ in _restricted(draft, memory)):
            found.append({"what": "restrict"})
        if any(True for _ in _loads(draft, memory)):
            found.append({"what": "read_only"})
        if any(True for _ in _stores(draft)):
            found.append({"what": "streaming"})
        return tuple(found)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """One of the three."""
        match setting["what"]:
            case "restrict":
                edited, says = _with_restrict(draft), "Pointers are declared not to alias."
            case "read_only":
                edited, says = (
                    _with_loads(draft),
                    "Read-only data is loaded through the read-only cache.",
                )
            case _:
                edited, says = (
                    _with_stores(draft),
                    "Results are stored with the evict-first policy.",
                )
        return edited.stepped(Step(self.name, setting, says))


# Pointers


def _restricted(draft: Draft, memory: Memory) -> Iterator[str]:
    """Pointer parameters to be declared so."""
    others = memory.arrays
    if not memory.is_followed or len(others) < 2:
        return
    header = draft.printer().header
    for p in draft.form.kernel.parameters:
        if not p.is_pointer or p.type.endswith("*") or _declared(header, p.name) is None:
            continue
        alone = all(
            memory.are_apart(p.name, other) or memory.written.isdisjoint((p.name, other))
            for other in others if other != p.name
        )  # fmt: skip
        if alone:
            yield p.name


def _declared(header: str, name: str) -> re.Match[str] | None:
    """Where a parameter is declared as a pointer without the word."""
    return re.compile(rf"(\*\s*)((?:const\s+)?){re.escape(name)}\b(?=\s*[,)])").search(header)


def _with_restrict(draft: Draft) -> Draft:
    memory = Memory(draft)
    names = list(_restricted(draft, memory))
    if not names:
        raise NotUnderstood("no pointer proved free of aliases")
    header = draft.printer().header
    for name in names:
        found = _declared(header, name)
        assert found is not None
        header = f"{header[: found.start()]}* {found[2]}__restrict__ {name}{header[found.end() :]}"
    kernel = draft.form.kernel
    where, body = kernel.where, kernel.body_where
    if where is None or body is None:
        raise NotUnderstood("the kernel is not in this file")
    text = draft.program.main.text.encode()[body.start : body.end].decode()
    guards = []
    for one, other in combinations([p.name for p in kernel.parameters if p.is_pointer], 2):
        if not {one, other}.isdisjoint(names) and not {one, other}.isdisjoint(memory.written):
            guards.append(memory.differ(one, other))
    edited = draft.edited(kernel, f"{header}\n{text}")
    return edited.requiring(*(g for g in guards if g is not None))


# Loads


def _loads(draft: Draft, memory: Memory) -> Iterator[s.Index]:
    """Reads of global memory in the kernel that nothing in the launch writes."""
    kernel = draft.form.kernel
    if any(p.is_volatile for p in kernel.parameters):
        return
    kept = {id(x) for x in _places(kernel.body)}
    told = {*_restricted(draft, memory), *(p.name for p in kernel.parameters if p.is_restrict)}
    pointers = {p.name for p in kernel.parameters if p.is_pointer} - told
    structures = {p.name for p in kernel.parameters if p.pointers}
    for x in s.below(kernel.body):
        if not isinstance(x, s.Index) or id(x) in kept or x.type not in LOADED or x.is_volatile:
            continue
        name = _array(x.base, pointers, structures)
        if name and memory.is_read_only(name):
            yield x


def _places(body: Any) -> Iterator[Any]:
    """What is written, or has its address taken: not read there."""
    for target in targets_in(body):
        yield from s.below(target)
    for x in s.below(body):
        if isinstance(x, s.Unary) and x.operator == "&":
            yield x.operand
        elif isinstance(x, s.Refer):
            yield x.target
        elif isinstance(x, s.Index | s.Member) and isinstance(x.base, s.Index):
            yield x.base


def _array(base: s.Expression, pointers: set[str], structures: set[str]) -> str:
    """The pointer that an array is reached by: a parameter, or `p.data`; empty for any other."""
    match base:
        case s.Name(text) if text in pointers:
            return text
        case s.Member(s.Name(text), field) if text in structures:
            return f"{text}.{field}"
    return ""


def _with_loads(draft: Draft) -> Draft:
    loads = {id(x) for x in _loads(draft, Memory(draft))}
    if not loads:
        raise NotUnderstood("no read-only data")
    # Outer ones are new objects once inner ones are changed: they are told by their place.
    places = {x.where for x in s.below(draft.form.kernel.body) if id(x) in loads}

    def change(node: Any) -> Any:
        if isinstance(node, s.Index) and node.where in places:
            return s.Call("__ldg", (s.Unary("&", node),), type=node.type)
        return node

    return draft.with_body(changed(draft.form.kernel.body, change))


# Stores


def _stores(draft: Draft) -> Iterator[s.Evaluate]:
    """Plain assignments to arrays that this one statement touches, each element once a thread."""
    facts = draft.facts
    if facts.unmodelled:
        return
    kernel = draft.form.kernel
    pointers = {p.name for p in kernel.parameters if p.is_pointer}
    for x in s.below(kernel.body):
        match x:
            case s.Evaluate(s.Assign(s.Index(s.Name(array)) as place, "", _)):
                if array in pointers and place.type in LOADED and _is_streamed(facts, array):
                    yield x


def _is_streamed(facts: KernelFacts, array: str) -> bool:
    touched = facts.touching(array)
    return len(touched) == 1 and _leaves_at_once(touched[0])


def _leaves_at_once(access: Access) -> bool:
    """Neighbouring threads write neighbouring elements, so that whole lines are filled at once."""
    stride = access.stride_bytes("threadIdx.x")
    return stride is not None and stride.constant == access.element_bytes


def _with_stores(draft: Draft) -> Draft:
    stores = {x.where for x in _stores(draft)}
    if not stores:
        raise NotUnderstood("no result written once")

    def change(node: Any) -> Any:
        if not isinstance(node, s.Evaluate) or node.where not in stores:
            return node
        match node.value:
            case s.Assign(place, "", value):
                same = getattr(value, "type", "") == place.type
                given = value if same else s.Cast(place.type, value)
                call = s.Call("__stcs", (s.Unary("&", place), given), type="void")
                return s.Evaluate(call, where=node.where)
        return node

    return draft.with_body(changed(draft.form.kernel.body, change))
