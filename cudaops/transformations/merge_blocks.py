"""Blocks that collect in shared memory and bring it home: several of them with one collection.

A kernel that clears counters in shared memory, counts in them, and adds every one to global memory
pays for clearing and adding once a block. Fewer blocks, each of which does the counting of several
of the author's before it adds, pay less often: sums of sums are sums, in whatever parts. Counters
that stayed at 0 add nothing, and are left out.

Proved from the form: everything before the first barrier writes zeros to shared memory and nothing
else; between the barriers shared memory is only added to, by atomics whose result nobody uses;
after the last one its elements are only added to memory that is touched in no other way. What
depends on the block stands between the barriers, or is moved there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import changed_variables, has_return, names_in, targets_in
from cudaops.program.analysis.facts import Access
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.atomic_sites import AtomicSite, prove_only_atomic, sites_of
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.predication import pruned
from cudaops.transformations.serial_blocks import (
    prove_independent,
    serial,
)
from cudaops.transformations.text import with_parameters
from cudaops.transformations.trees import declared_in, is_barrier, swapped

BLOCKS = (528, 264, 1056, 2112, 132)
"""Whole waves of one to sixteen blocks an SM, on devices of about 132 of them."""
_ADDING = ("atomicAdd", "atomicOr")
"""Whose parts may be put together, and which 0 does not change."""


class MergeBlocks:
    """Fewer collections in shared memory."""

    name = "merge_blocks"
    title = "blocks merged for one accumulation"
    family: Family = "reduction"
    relieves = frozenset({
        "atomic_contention", "l2_bandwidth", "many_waves", "stall_barrier", "low_parallelism",
        "stall_lg_throttle",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Numbers of blocks below the author's."""
        _parts(draft)
        grid = draft.workloads[0].grid
        return tuple({"blocks": n} for n in BLOCKS if 2 * n <= grid.x * grid.y * grid.z)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """With at most this many."""
        parts = _parts(draft)
        blocks = serial(draft, parts.work, int(setting["blocks"]), is_last=False)
        home: Any = parts.home
        for site in parts.brought:
            home = swapped(home, site.statement, _if_not_zero(site))
        header = with_parameters(draft.printer().header, blocks.parameters)
        found = draft.with_body((*parts.clear, blocks.loop, *home), header)
        step = Step(
            self.name, setting,
            f"Limited the grid to {setting['blocks']} blocks; each does the work of several and "
            "flushes its shared-memory accumulators once, without zeros.",
        )  # fmt: skip
        arguments = (*draft.launch.args, *blocks.arguments)
        found = found.launched(grid=blocks.grid, args=arguments)
        return found.requiring(*blocks.requires).stepped(step)


@dataclass(frozen=True)
class _Parts:
    """The three parts of such a kernel."""

    clear: tuple[s.Statement, ...]
    work: tuple[s.Statement, ...]
    home: tuple[s.Statement, ...]
    """From the last barrier on."""
    brought: tuple[AtomicSite, ...]
    """Atomics of the last part."""


def _parts(draft: Draft) -> _Parts:
    """Raises NotUnderstood where it is no such kernel, or not proved to be one."""
    prove_independent(draft)
    body = pruned(draft.form.kernel.body)
    at = [n for n, x in enumerate(body) if is_barrier(x)]
    if len(at) < 2:
        raise NotUnderstood("no work between two block barriers")
    clear, work, home = body[: at[0] + 1], body[at[0] + 1 : at[-1]], body[at[-1] :]
    clear, moved = _sorted(draft, clear, home)
    work = (*moved, *work)
    if has_return(body):
        raise NotUnderstood("threads that return before the end of the kernel")
    if any(map(_asks_for_block, s.below((*clear, *home)))):
        raise NotUnderstood("a prologue or epilogue that depends on the block")
    _prove_scopes(draft, clear, work, home)
    sites = {site.statement.where: site for site in sites_of(draft)}
    collected = _prove_work(draft, clear, work, home, sites)
    brought = tuple(_prove_home(draft, home, sites, collected))
    return _Parts(clear, work, home, brought)


def _asks_for_block(node: Any) -> bool:
    return isinstance(node, s.Name) and node.text in ("blockIdx", "gridDim")


def _sorted(
    draft: Draft, clear: tuple[s.Statement, ...], home: tuple[s.Statement, ...]
) -> tuple[tuple[s.Statement, ...], tuple[s.Statement, ...]]:
    """What clears shared memory with all that it needs; and the rest, which is work: neither
    touches what the other one does."""
    *before, barrier = clear
    if any(is_barrier(x) for x in s.below(tuple(before))):
        raise NotUnderstood("a barrier in the prologue")
    keeps = {id(x) for x in before if any(a.space == "shared" for a in _within(draft, [x]))}
    keeps |= {id(x) for x in before if isinstance(x, s.Declare) and x.shared}
    while True:
        needed = names_in(tuple(x for x in before if id(x) in keeps)) | names_in(home)
        more = {id(x) for x in before if _sets(x) in needed} - keeps
        if not more:
            break
        keeps |= more
    kept = tuple(x for x in before if id(x) in keeps)
    moved = tuple(x for x in before if id(x) not in keeps)
    if lost := needed & changed_variables(moved, draft.form):
        raise NotUnderstood(f"{min(lost)} is changed before shared memory is cleared")
    return (*kept, barrier), moved


def _sets(node: s.Statement) -> str:
    """The variable that a statement is there for; empty for any other."""
    match node:
        case s.Declare(_, name) | s.Evaluate(s.Assign(s.Name(name))):
            return name
    return ""


def _prove_scopes(
    draft: Draft, clear: Sequence[Any], work: Sequence[Any], home: Sequence[Any]
) -> None:
    """No variable carries anything from one block's work to the next, or out of it."""
    outer = {x.name for x in clear if isinstance(x, s.Declare) and not x.shared}
    if changed_there := changed_variables(tuple(work), draft.form) & outer:
        raise NotUnderstood(f"{min(changed_there)} is carried from one block to the next")
    inner = {x.name for x in work if isinstance(x, s.Declare | s.Refer)}
    if used := inner & names_in(tuple(home)):
        raise NotUnderstood(f"{min(used)} is used after the merged part")
    parameters = {p.name for p in draft.form.kernel.parameters}
    if (
        changed_variables(tuple(work), draft.form) & parameters & names_in(tuple(home))
        or changed_variables((*clear, *home), draft.form) & parameters
    ):
        raise NotUnderstood("a modified parameter")


def _within(draft: Draft, body: Sequence[Any]) -> Iterator[Access]:
    """Accesses of some statements."""
    places = [x.where for x in body if x.where is not None]
    for access in draft.facts.accesses:
        where = access.where
        if where is None:
            raise NotUnderstood("an access to an unknown address")
        if any(p.start <= where.start < p.end for p in places):
            yield access


def _prove_work(
    draft: Draft, clear: Sequence[Any], work: Sequence[Any], home: Sequence[Any],
    sites: dict[Any, AtomicSite],
) -> dict[str, str]:  # fmt: skip
    """That shared memory begins as zeros and is only added to; with what function, by array."""
    for access in _within(draft, clear):
        if access.kind != "write" or access.space not in ("shared", "local"):
            raise NotUnderstood(f"a prologue that accesses {access.array or 'memory'}")
    for node in s.below(tuple(clear)):
        if isinstance(node, s.Step | s.Assign) and not isinstance(node.target, s.Name):
            zero = isinstance(node, s.Assign) and not node.operator and _is_zero(node.value)
            if not zero:
                raise NotUnderstood("shared memory that is not zero-initialised")
    found: dict[str, str] = {}
    for access in _within(draft, work):
        if access.space == "unknown":
            raise NotUnderstood("a pointer of unknown target")
        if access.space != "shared":
            continue
        site = sites.get(access.where)
        function = site.operation.function if site else ""
        if access.kind != "atomic" or function not in _ADDING:
            raise NotUnderstood(f"{access.array} is not only accumulated")
        if found.setdefault(access.array, function) != function:
            raise NotUnderstood(f"{access.array} is modified in two ways")
    if not found:
        raise NotUnderstood("no accumulation in shared memory")
    cleared = {a.array for a in _within(draft, clear) if a.space == "shared"}
    if found.keys() - cleared:
        raise NotUnderstood("shared memory that is not zero-initialised")
    return found


def _is_zero(node: s.Expression) -> bool:
    return isinstance(node, s.Number) and node.text.rstrip("fFlLuU") in ("0", "0.0", "0.", ".0")


def _prove_home(
    draft: Draft, home: Sequence[Any], sites: dict[Any, AtomicSite], collected: dict[str, str]
) -> Iterator[AtomicSite]:
    """That what was collected is only added to global memory."""
    tests = [x for x in s.below(tuple(home)) if _is_test(x)]
    accesses = [a for a in _within(draft, home) if a.where not in {x.where for x in tests}]
    for where in dict.fromkeys(a.where for a in accesses):
        here = [a for a in accesses if a.where == where]
        site = sites.get(where)
        reads = [a for a in here if a.space == "shared"]
        to = [a for a in here if a.space != "shared"]
        if site is None or len(to) != 1 or to[0].kind != "atomic" or len(reads) != 1:
            raise NotUnderstood("an epilogue that does more than accumulate")
        function = collected.get(reads[0].array)
        plain = isinstance(site.value, s.Index | s.Name) and not isinstance(site.index, s.Assign)
        if reads[0].kind != "read" or function != site.operation.function or not plain:
            raise NotUnderstood("an epilogue that adds another value")
        if reads[0].type != site.type or to[0].array in {a.array for a in reads}:
            raise NotUnderstood("an epilogue that adds in another type")
        if not any(x.yes[0] is site.statement for x in tests):
            yield site
    written = {t for t in map(_variable, targets_in(tuple(home))) if t}
    if written - declared_in(tuple(home)):
        raise NotUnderstood("an epilogue that modifies variables")
    brought = {sites[a.where].base for a in accesses if a.where in sites}
    for base in brought:
        array = prove_only_atomic(draft, base, tuple(x for x in sites.values() if x.base == base))
        if any(a.kind != "atomic" for a in draft.facts.touching(array)):
            raise NotUnderstood(f"{array} is read too")
    if not brought:
        raise NotUnderstood("no flush of the private copy to global memory")


def _is_test(node: Any) -> bool:
    """`if (count[i] != 0) atomicAdd(.., count[i]);`"""
    match node:
        case s.If(condition, (s.Evaluate(s.Call(_, (_, value))),), ()):
            match condition:
                case s.Binary("!=", tested, zero):
                    return bool(tested == value and _is_zero(zero))
                case s.Binary(">", tested, zero):
                    sure = getattr(tested, "type", "").startswith("unsigned")
                    return bool(tested == value and _is_zero(zero) and sure)
            return bool(condition == value)
    return False


def _variable(place: s.Expression) -> str:
    return place.text if isinstance(place, s.Name) else ""


def _if_not_zero(site: AtomicSite) -> s.Statement:
    """Only where there is something to add."""
    where = site.statement.where
    test = s.Binary("!=", site.value, s.Number("0"))
    return s.If(test, (replace(site.statement, where=None),), where=where)
