"""Atomics on global memory, collected by a block first: in registers or shared memory.

Where nobody looks at an atomic's result and the kernel does nothing else with the memory, it
matters only that each value arrives once. Values for one address are collected by each thread in
a register and by each block over its warps; values for many addresses in a copy in shared memory
of the array's begin, from which every element that changed goes to global memory once a block.
Elements beyond the copy go where they went, so that an array of any size is right; where launches
have arrays of several sizes, a copy is used as far as a parameter says that the launch's array is
long. With fewer blocks, which take more turns of loops in strides of the grid, or do the work of
the author's one after the other, there is less to bring home.

Sums of integers, minima, maxima and bits are the same in any order; sums of floats are as free in
their order as they were. That the memory is touched otherwise is ruled out by the kernel's
accesses, and by the allocations that the captured launches have for its other pointers: a kernel
that reads with one pointer what others change through another would race with itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import has_return, is_pure, written_names
from cudaops.program.analysis.facts import ELEMENT_BYTES, varies_in_block
from cudaops.program.analysis.kernel import analyse
from cudaops.program.analysis.polynomials import Symbol
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.atomic_sites import (
    AtomicSite,
    Operation,
    elements_of,
    is_fixed,
    lengths_of,
    prove_only_atomic,
    sites_of,
)
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.grid_stride import on_grid
from cudaops.transformations.predication import without_returns
from cudaops.transformations.serial_blocks import prove_independent, serial
from cudaops.transformations.shared_memory import room_for, threads_of, whole_warps
from cudaops.transformations.text import Raw, with_parameters
from cudaops.transformations.trees import swapped

BLOCKS = (528, 264, 1056, 132)
"""Whole waves of one to eight blocks an SM, on devices of about 132 of them."""
_WHOLE = "0xffffffffu"


class AtomicsPrivate:
    """Collects what goes to global memory by atomics."""

    name = "atomics_private"
    title = "atomics aggregated per block"
    family: Family = "reduction"
    relieves = frozenset({
        "atomic_contention", "l2_bandwidth", "stall_lg_throttle", "stall_long_scoreboard",
        "many_waves", "low_parallelism",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """With fewer blocks, and with as many as the author launches."""
        groups = _groups(draft)
        if not groups:
            return ()
        grid = draft.workloads[0].grid
        blocks = grid.x * grid.y * grid.z
        fewer = tuple({"blocks": n} for n in BLOCKS if 2 * n <= blocks)
        if not all(g.is_alone for g in groups):
            fewer = ()
        return (*fewer, {"blocks": "all"})

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All arrays that it can be done for."""
        serially = setting["blocks"] != "all"
        if serially:
            with contextlib.suppress(NotUnderstood):
                draft, serially = on_grid(draft, int(setting["blocks"])), False
        groups = _groups(draft)
        if not groups:
            raise NotUnderstood("no atomics that can be aggregated per block")
        body: Any = draft.form.kernel.body
        thread = _Thread.of(draft)
        made = [_made(draft, group, thread) for group in groups]
        for one in made:
            for site, statement in one.sites:
                body = swapped(body, site.statement, statement)
        if has_return(body) and any(b.is_divergent for b in draft.facts.barriers):
            raise NotUnderstood("threads that return before a barrier")
        body = without_returns(body)
        blocks, header = None, None
        if setting["blocks"] != "all" and not all(g.is_alone for g in groups):
            raise NotUnderstood("an array that each block owns a part of, or clears")
        if serially:
            blocks = serial(draft, body, int(setting["blocks"]))
            header = with_parameters(draft.printer().header, blocks.parameters)
            body = (blocks.loop,)
        for group in groups:
            if group.base not in {p.name for p in draft.form.kernel.parameters} | _scope(body):
                raise NotUnderstood(f"{group.base} is out of scope at the end of the kernel")
        begins = (*thread.lines, *(x for m in made for x in m.before))
        if any(m.needs_barrier for m in made):
            begins = (*begins, Raw("__syncthreads();\n"))
        ends = tuple(x for m in made for x in m.after)
        found = draft.with_body((*begins, *body, *ends), header)
        if blocks is not None:
            arguments = (*draft.launch.args, *blocks.arguments)
            found = found.launched(grid=blocks.grid, args=arguments).requiring(*blocks.requires)
        guards = [g for m in made for g in m.requires]
        step = Step(self.name, setting, _told(groups, setting))
        return found.requiring(*dict.fromkeys(guards)).stepped(step)


@dataclass(frozen=True)
class _Thread:
    """How a thread's number in its block is written."""

    number: str
    count: str
    lines: tuple[Raw, ...]

    @classmethod
    def of(cls, draft: Draft) -> _Thread:
        number, count = threads_of(draft)
        if number == "threadIdx.x":
            return cls(number, count, ())
        thread, threads = draft.fresh_name("thread"), draft.fresh_name("threads")
        lines = f"const unsigned {thread} = {number};\nconst unsigned {threads} = {count};"
        return cls(thread, threads, (Raw(lines),))


@dataclass(frozen=True)
class _Group:
    """Atomics of one kind on one array."""

    base: str
    array: str
    operation: Operation
    type: str
    sites: tuple[AtomicSite, ...]
    is_one: bool
    """All go to one address, the same for the whole launch."""
    is_alone: bool
    """The array is a parameter's, and the kernel does nothing else with it."""
    elements: int
    """Of the copy in shared memory."""


def _groups(draft: Draft) -> tuple[_Group, ...]:
    """What can be collected, in the text's order. Raises NotUnderstood."""
    prove_independent(draft)
    by_base: dict[str, list[AtomicSite]] = {}
    for site in sites_of(draft):
        by_base.setdefault(site.base, []).append(site)
    room = room_for(draft)
    found, why = [], "no atomics with unused results"
    for base, sites in by_base.items():
        try:
            group = _group(draft, base, tuple(sites), room)
        except NotUnderstood as error:
            why = str(error)
            continue
        if not group.is_one:
            room -= group.elements * ELEMENT_BYTES[group.type]
        found.append(group)
    if not found:
        raise NotUnderstood(why)
    return tuple(found)


def _group(draft: Draft, base: str, sites: tuple[AtomicSite, ...], room: int) -> _Group:
    first = sites[0]
    if any((x.operation, x.type) != (first.operation, first.type) for x in sites):
        raise NotUnderstood(f"atomics of several kinds on {base}")
    array = prove_only_atomic(draft, base, sites)
    fixed = is_fixed(draft, base)
    if not fixed and not _is_set_once(draft, base):
        raise NotUnderstood(f"{base} moves")
    touching = draft.facts.touching(array)
    alone = fixed and all(a.kind == "atomic" for a in touching)
    one = fixed and _full_warps(draft) and all(_is_launchs(draft, x.index, first) for x in sites)
    if one:
        return _Group(base, array, first.operation, first.type, sites, True, alone, 1)
    if all(_is_scattered_evenly(a) for a in touching if a.kind == "atomic"):
        raise NotUnderstood(f"threads that add to distinct elements of {array}")
    size = ELEMENT_BYTES[first.type]
    elements = elements_of(draft, array, size)
    if not fixed:
        grid = draft.workloads[0].grid
        elements = -(-elements // (grid.x * grid.y * grid.z))
    highest = max((_highest(draft, array, size)), 0)
    if highest:
        elements = min(elements, highest)
    if not elements or elements * size > room:
        raise NotUnderstood(f"{elements} elements of {array} do not fit into shared memory")
    return _Group(base, array, first.operation, first.type, sites, False, alone, elements)


def _highest(draft: Draft, array: str, size: int) -> int:
    """Elements that the atomics can reach, whatever the launch; 0 where that is not known."""
    touching = [a for a in analyse(draft.form).touching(array) if a.kind == "atomic"]
    ends = [a.interval_bytes for a in touching]
    if not ends or any(i.high is None or not i.is_nonnegative for i in ends):
        return 0
    return max(i.high or 0 for i in ends) // size + 1


def _is_set_once(draft: Draft, base: str) -> bool:
    body = draft.form.kernel.body
    changed_names = {
        x.target.text
        for x in s.below(body)
        if isinstance(x, s.Assign | s.Step) and isinstance(x.target, s.Name)
    }
    declared = [x for x in body if isinstance(x, s.Declare) and x.name == base and x.pointer]
    return bool(declared) and declared[0].value is not None and base not in changed_names


def _is_launchs(draft: Draft, index: s.Expression, first: AtomicSite) -> bool:
    """Whether an index is the first one's, and the same for all threads of a launch."""
    kernel = draft.form.kernel
    written = written_names(kernel.body, draft.form)
    given = {p.name for p in kernel.parameters if not p.is_pointer} - (written or set())
    plain = isinstance(index, s.Number) or (isinstance(index, s.Name) and index.text in given)
    return plain and index == first.index and written is not None


def _full_warps(draft: Draft) -> bool:
    return all(w.block.x * w.block.y * w.block.z % 32 == 0 for w in draft.workloads)


def _is_scattered_evenly(access: Any) -> bool:
    """Whether neighbouring threads certainly meet different elements."""
    if access.offset_bytes is None or not varies_in_block(access.depends):
        return False
    stride = access.stride_bytes("threadIdx.x")
    plain = all(isinstance(a, Symbol) and "#" not in a.name for a in access.offset_bytes.atoms())
    return plain and stride is not None and stride.constant not in (None, 0)


def _scope(body: Sequence[Any]) -> set[str]:
    return {x.name for x in body if isinstance(x, s.Declare)}


# What is written


@dataclass(frozen=True)
class _Made:
    """The pieces that stand in for the atomics of one group."""

    before: tuple[Raw, ...]
    sites: tuple[tuple[AtomicSite, Any], ...]
    after: tuple[Raw, ...]
    needs_barrier: bool
    requires: tuple[LaunchExpression, ...] = ()


def _made(draft: Draft, group: _Group, thread: _Thread) -> _Made:
    return _in_register(draft, group, thread) if group.is_one else _in_copy(draft, group, thread)


def _address(draft: Draft, group: _Group, at: str) -> str:
    """Of an element of the author's array, as the atomic function takes it."""
    place = group.base if at == "0" else f"&{group.base}[{at}]"
    kernel = draft.form.kernel
    kinds = {p.name: p.type for p in kernel.parameters if p.is_pointer}
    kinds |= {x.name: x.type for x in s.below(kernel.body) if isinstance(x, s.Declare)}
    return place if kinds[group.base] == group.type else f"({group.type}*){place}"


def _in_register(draft: Draft, group: _Group, thread: _Thread) -> _Made:
    """Each thread's own total; then over lanes, warps, and one atomic a block."""
    stem = s.plain_name(group.base)
    total, totals = draft.fresh_name(f"{stem}_total"), draft.fresh_name(f"{stem}_totals")
    kind = (
        "unsigned" if (group.type, group.operation.function) == ("int", "atomicAdd") else group.type
    )
    nothing = group.operation.identity(group.type)
    combine, function = group.operation.combine, group.operation.function
    sites = tuple((x, _collected(x, total)) for x in group.sites)
    index = draft.printer().expression(group.sites[0].index)
    lanes, warp = draft.fresh_name("lanes"), draft.fresh_name("warp")
    shuffled = combine.format(a=total, b=f"__shfl_down_sync({_WHOLE}, {total}, {lanes})")
    gathered = combine.format(a=total, b=f"{totals}[{warp}]")
    text = f"""
// One atomic a block: over the lanes of a warp, then over warps.
for (int {lanes} = 16; {lanes} > 0; {lanes} /= 2) {shuffled};
__shared__ {kind} {totals}[32];
if ({thread.number} % 32 == 0) {totals}[{thread.number} / 32] = {total};
__syncthreads();
if ({thread.number} == 0) {{
    for (unsigned {warp} = 1; {warp} < {thread.count} / 32; ++{warp}) {gathered};
    if ({total} != {nothing}) {function}({_address(draft, group, index)}, {total});
}}"""
    guards = (whole_warps(draft),)
    return _Made((Raw(f"{kind} {total} = {nothing};"),), sites, (Raw(text),), False, guards)


def _collected(site: AtomicSite, total: str) -> s.Evaluate:
    """A value that joins a thread's total."""
    value = site.value
    kind = getattr(value, "type", "")
    whole = site.type in ("int", "unsigned") and kind in ("int", "unsigned", "bool")
    if kind != site.type and not (whole and site.operation.function == "atomicAdd"):
        value = s.Cast(site.type, value)
    name = s.Name(total)
    operator = {"atomicAdd": "+", "atomicAnd": "&", "atomicOr": "|", "atomicXor": "^"}
    if site.operation.function in operator:
        what: s.Expression = s.Assign(name, operator[site.operation.function], value)
    else:
        of_two = site.operation.function.removeprefix("atomic").lower()
        what = s.Assign(name, "", s.Call(of_two, (name, value)))
    return s.Evaluate(what, where=site.statement.where)


def _in_copy(draft: Draft, group: _Group, thread: _Thread) -> _Made:
    """A copy of the array's begin for each block."""
    stem = s.plain_name(group.base)
    copy, at = draft.fresh_name(f"{stem}_of_block"), draft.fresh_name("bin")
    nothing, count = group.operation.identity(group.type), str(group.elements)
    value = draft.fresh_name("collected")
    known = group.array == group.base and _highest(draft, group.array, ELEMENT_BYTES[group.type])
    inside = 0 < known <= group.elements
    before = f"__shared__ {group.type} {copy}[{count}];\n"
    length = None if inside else _length(draft, group)
    if length is not None:
        used = draft.fresh_name(f"{stem}_used")
        before += f"const unsigned {used} = min((unsigned){length}, {count}u);\n"
        count = used
    each = f"for (unsigned {at} = {thread.number}; {at} < {count}; {at} += {thread.count})"
    before += f"{each} {copy}[{at}] = {nothing};"
    text = f"""
// Flush the block's private copy to global memory.
__syncthreads();
{each} {{
    const {group.type} {value} = {copy}[{at}];
    if ({value} != {nothing}) {group.operation.function}({_address(draft, group, at)}, {value});
}}"""
    sites = tuple((x, _into_copy(draft, x, copy, count, inside=inside)) for x in group.sites)
    return _Made((Raw(before),), sites, (Raw(text),), True)


def _length(draft: Draft, group: _Group) -> str | None:
    """The parameter that says in each captured launch how long the array is, where launches differ
    in that: a copy as long as the longest would be set to zero and brought home in vain."""
    lengths = lengths_of(draft, group.array, ELEMENT_BYTES[group.type])
    if not group.is_alone or len(set(lengths)) == 1:
        return None
    kernel = draft.form.kernel
    written = written_names(kernel.body, draft.form)
    for parameter in kernel.parameters:
        name = parameter.name
        if parameter.type not in ("int", "unsigned") or written is None or name in written:
            continue
        given = [a for w in draft.workloads for a in w.arguments if a.name == name]
        if [getattr(a, "value", None) for a in given] == list(lengths):
            return name
    return None


def _into_copy(draft: Draft, site: AtomicSite, copy: str, count: str, *, inside: bool) -> Any:
    """The same operation on the block's copy, where the element is one of its first `count`."""
    index, where = site.index, site.statement.where
    kind = getattr(index, "type", "") or "int"
    if not is_pure(index, {f.name for f in draft.form.functions}) and inside:
        raise NotUnderstood("an index with a side effect")
    named: tuple[s.Statement, ...] = ()
    if not inside and not isinstance(index, s.Name | s.Number):
        name = draft.fresh_name("to")
        named = (s.Declare(f"const {kind}", name, value=index),)
        index = s.Name(name, type=kind)
    place = s.Unary("&", s.Index(s.Name(copy), index))
    own = s.Evaluate(s.Call(site.operation.function, (place, site.value)), where=where)
    if inside:
        return own
    unsigned = kind.startswith("unsigned") or kind in ("bool", "size_t")
    wide = "unsigned long long" if "long long" in kind else "unsigned"
    tested = index if unsigned else s.Cast(wide, index)
    original = site.statement
    if named:
        address = _moved_address(site, index)
        original = s.Evaluate(s.Call(site.operation.function, (address, site.value)))
    own = replace(own, where=None)
    chosen = s.If(s.Binary("<", tested, s.Name(count)), (own,), (original,), where=where)
    return s.Block((*named, replace(chosen, where=None)), where=where) if named else chosen


def _moved_address(site: AtomicSite, index: s.Expression) -> s.Expression:
    place = s.Unary("&", s.Index(s.Name(site.base), index))
    call = site.statement.value
    assert isinstance(call, s.Call)
    return s.Cast(call.arguments[0].type, place) if isinstance(call.arguments[0], s.Cast) else place


def _told(groups: Sequence[_Group], setting: Setting) -> str:
    one = [f"`{g.base}`" for g in groups if g.is_one]
    many = [f"`{g.base}`" for g in groups if not g.is_one]
    parts = []
    if one:
        parts.append(
            f"accumulated the updates of {' and '.join(one)} in registers, one atomic per block"
        )
    if many:
        parts.append(f"accumulated the updates of {' and '.join(many)} in a private copy per block")
    if setting["blocks"] != "all":
        parts.append(f"limited the grid to {setting['blocks']} blocks")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."
