"""One thread's work done by a team: a warp, a part of one, or a block.

All lanes of a team go through the thread's text with the same values. They share the iterations of
some loops (`splitting`), after which every lane has the whole sums; what is stored outside of these
loops, the first lane stores. Where lanes may look at what another one stored, they wait for it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    calls_in,
    has_volatile,
    is_pointed_at,
    names_in,
    root_of,
)
from cudaops.program.analysis.facts import Access
from cudaops.program.analysis.library_calls import BARRIERS, COLLECTIVES
from cudaops.program.analysis.polynomials import Polynomial, Symbol
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.accumulations import FUNCTIONS
from cudaops.transformations.combining import merged, neutral, starts_neutral
from cudaops.transformations.draft import Draft
from cudaops.transformations.scanning import scanned
from cudaops.transformations.splitting import ATOMICS, Accumulator, Loops, Split
from cudaops.transformations.text import Raw, RawExpression
from cudaops.transformations.trees import declared_in, is_barrier

FULL = "0xffffffff"
"""All lanes of a warp."""
_STATEMENTS = frozenset({"printf", "__assert_fail", "assert"})
"""Functions that only speak to the host."""


@dataclass
class ThreadGroup:
    """Who works on one thread's work."""

    draft: Draft
    size: int
    lane: str
    """Name of the variable with the lane's number in the team."""
    mask: str = FULL
    """Lanes of the warp that are of the team, as an expression."""
    is_block: bool = False
    helpers: dict[str, str] = field(default_factory=dict)
    """Functions that the kernel needs, by name."""

    @property
    def wait(self) -> Raw:
        """For all lanes, with what they stored."""
        if self.is_block:
            return Raw("__syncthreads();")
        return Raw("__syncwarp();" if self.mask == FULL else f"__syncwarp({self.mask});")

    def first(self) -> Any:
        """Whether it is the lane that stores."""
        return RawExpression(f"{self.lane} == 0")

    def combined(self, accumulators: Sequence[Accumulator]) -> list[Raw]:
        """Statements after which every lane has the whole of each."""
        parts = [line for a in accumulators if a.kind != "flag" for line in self._lines(a)]
        lines = []
        if parts and self.is_block:
            lines = parts
        elif parts:
            inner = "\n".join(f"    {line}" for part in parts for line in part.split("\n"))
            apart = self.draft.fresh_name("apart")
            head = f"for (int {apart} = {self.size // 2}; {apart} > 0; {apart} /= 2) {{"
            lines = [f"{head}\n{inner}\n}}"]
        lines += [self._flag(a) for a in accumulators if a.kind == "flag"]
        return [Raw(line) for line in lines]

    def _flag(self, a: Accumulator) -> str:
        place = self._place(a.place)
        test = f"{place} == {a.function}"
        vote = f"__syncthreads_or({test})" if self.is_block else f"__any_sync({self.mask}, {test})"
        return f"if ({vote}) {place} = {a.function};"

    def _place(self, place: Any) -> str:
        return self.draft.printer().expression(place)

    def _lines(self, a: Accumulator) -> Iterator[str]:
        place = self._place(a.place)
        if a.extent is None:
            yield self._line(a, place)
            return
        element, extent = (
            self.draft.fresh_name("element"),
            self.draft.printer().expression(a.extent),
        )
        yield (
            f"for (int {element} = 0; {element} < {extent}; ++{element}) {{\n"
            f"    {self._line(a, f'{place}[{element}]')}\n}}"
        )

    def _line(self, a: Accumulator, place: str) -> str:
        if self.is_block and a.kind == "best":
            others = ", ".join(self._place(p) for p in (a.place, *a.moved))
            return f"{self._best_helper(a)}({others});"
        if self.is_block:
            return f"{place} = {self._helper(a)}({place});"
        apart = self.draft.fresh_name("apart")
        if a.kind == "best":
            return self._best(a, apart)
        return merged(a, place, f"__shfl_xor_sync({self.mask}, {place}, {apart})")

    def _best(self, a: Accumulator, apart: str) -> str:
        names = [self._place(p) for p in (a.place, *a.moved)]
        others = [self.draft.fresh_name(f"other_{n.replace('.', '_')}") for n in names]
        given = [f"__shfl_xor_sync({self.mask}, {name}, {apart})" for name in names]
        return "\n".join(_taken_if_better(a, names, others, given))

    def _best_helper(self, a: Accumulator) -> str:
        types = [a.type, *(p.type for p in a.moved)]
        names = ["best", "at", *(f"other{n}" for n in range(len(types) - 2))]
        name = self.draft.fresh_name(f"block_{'most' if a.function == '>' else 'least'}")
        if not self.helpers.get(name, _best_story(a)).startswith(_best_story(a)):
            raise NotUnderstood("block-wide minima or maxima of several types")
        given = ", ".join(f"{t}& {n}" for t, n in zip(types, names, strict=True))
        news = [f"new_{n}" for n in names]
        lanes = [f"__shfl_xor_sync({FULL}, {n}, apart)" for n in names]
        warps = [f"{n}_of[warp]" for n in names]
        count = self.size // 32
        pairs = list(zip(types, names, strict=True))
        lines = [f"    __shared__ {t} {n}_of[{count}];" for t, n in pairs]
        lines.append("    for (int apart = 16; apart > 0; apart /= 2) {")
        lines += [textwrap.indent(x, "        ") for x in _taken_if_better(a, names, news, lanes)]
        lines += ["    }", "    if (threadIdx.x % 32 == 0) {"]
        lines += [f"        {n}_of[threadIdx.x / 32] = {n};" for n in names]
        lines += ["    }", "    __syncthreads();"]
        lines.append(f"    for (int warp = 0; warp < {self.size // 32}; ++warp) {{")
        lines += [textwrap.indent(x, "        ") for x in _taken_if_better(a, names, news, warps)]
        lines += ["    }", "    __syncthreads();", "}"]
        story = f"{_best_story(a)}\n__device__ void {name}({given})\n{{\n"
        self.helpers[name] = story + "\n".join(lines)
        return name

    def _helper(self, a: Accumulator) -> str:
        """The function that combines one value of each thread of a block."""
        name = self.draft.fresh_name(f"block_{a.kind}_of_{a.type.replace(' ', '_')}")
        warps = self.size // 32
        self.helpers[name] = (
            f"// The {a.kind} of all threads' values; every thread of the block gets it.\n"
            f"__device__ {a.type} {name}({a.type} value)\n{{\n"
            f"    __shared__ {a.type} of_warp[{warps}];\n"
            "    for (int apart = 16; apart > 0; apart /= 2) {\n"
            f"        {merged(a, 'value', f'__shfl_xor_sync({FULL}, value, apart)')}\n    }}\n"
            "    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;\n"
            "    __syncthreads();\n    value = of_warp[0];\n"
            f"    for (int warp = 1; warp < {warps}; ++warp) {{\n"
            f"        {merged(a, 'value', 'of_warp[warp]')}\n    }}\n"
            "    __syncthreads();\n    return value;\n}"
        )
        return name


def _best_story(a: Accumulator) -> str:
    word = "greatest" if a.function == ">" else "least"
    types = ", ".join((a.type, *(p.type for p in a.moved)))
    return f"// The {word} of all threads' values, the first of equal ones ({types})."


def _taken_if_better(
    a: Accumulator, names: Sequence[str], others: Sequence[str], given: Sequence[str]
) -> list[str]:
    """Lines that take another lane's best where it is better, or came first."""
    types = [a.type, *(p.type for p in a.moved)]
    lines = [
        f"const {kind} {other} = {value};"
        for kind, other, value in zip(types, others, given, strict=True)
    ]
    (best, at), (new, where) = names[:2], others[:2]
    lines.append(f"if ({new} {a.function} {best} || ({new} == {best} && {where} < {at})) {{")
    lines += [f"    {name} = {other};" for name, other in zip(names, others, strict=True)]
    return [*lines, "}"]


def shared_loop(split: Split, lane: str, lanes: str) -> tuple[list[Any], s.For]:
    """Statements before a loop and the loop, for one of several lanes."""
    loop, before = split.loop, []
    first, step, body = list(loop.first), list(loop.step), list(loop.body)
    for x in split.inductions:
        by = x.by
        one = isinstance(by, s.Number) and by.text == "1"
        mine: Any = RawExpression(lane)
        ahead = mine if one else s.Binary("*", mine, by)
        wide = s.Number(lanes) if one else s.Binary("*", by, s.Number(lanes))
        if isinstance(by, s.Number) and by.text.isdigit() and lanes.isdigit():
            wide = s.Number(str(int(by.text) * int(lanes)))
        for nth, node in enumerate(first):
            if (moved := _begun(node, x.name, x.sign, ahead)) is not None:
                first[nth] = moved
                break
        else:
            before.append(s.Evaluate(s.Assign(s.Name(x.name), x.sign, ahead)))
        move = s.Assign(s.Name(x.name), x.sign, wide)
        if x.at in step:
            step = [move if y is x.at else y for y in step]
        else:
            body = [replace(y, value=move) if y is x.at else y for y in body]
    return before, replace(loop, first=tuple(first), step=tuple(step), body=tuple(body))


def _begun(node: Any, name: str, sign: str, ahead: Any) -> Any:
    """The statement of a loop's head that begins a counter, so many steps further on."""
    match node:
        case s.Declare(name=same, value=value) if same == name and value is not None:
            return replace(node, value=_further(value, sign, ahead), where=None)
        case s.Evaluate(s.Assign(s.Name(same) as target, "", value)) if same == name:
            return s.Evaluate(s.Assign(target, "", _further(value, sign, ahead)))
    return None


def _further(value: Any, sign: str, ahead: Any) -> Any:
    if isinstance(value, s.Number) and value.text == "0" and sign == "+":
        return ahead
    return s.Binary(sign, value, ahead)


class Sharing:
    """A body for a team in place of a thread."""

    def __init__(
        self, draft: Draft, loops: Loops, team: ThreadGroup, chosen: Mapping[int, Split],
        body: Sequence[Any],
    ) -> None:  # fmt: skip
        """`chosen`: loops of the body that are shared, by their node's id."""
        self._body = body
        self._draft, self._loops, self._team, self._chosen = draft, loops, team, chosen
        self._leaders: list[Any] = []
        """Statements that the first lane alone goes through."""
        self._meeting: frozenset[str] = frozenset()
        """Arrays that lanes may look at after another lane stored there."""
        if has_volatile((draft.form.kernel, *draft.form.functions)):
            raise NotUnderstood("volatile memory")
        called = calls_in(tuple(body))
        for function in draft.form.functions:
            called |= calls_in(function.body) if function.name in called else set()
        for function in draft.form.functions:
            if function.name in called and names_in(function.body) & {*s.BUILTINS, "warpSize"}:
                raise NotUnderstood(f"{function.name} reads threadIdx")
        if called & {*COLLECTIVES, "__syncwarp"}:
            raise NotUnderstood("warp collectives in the kernel")

    def shared(self, *, whole_kernel: bool) -> list[Any]:
        """The body for all lanes: of the kernel, or of a part that one thread goes through. Raises
        NotUnderstood."""
        body = self._body
        self._walk(body, ends="return" if whole_kernel else "guard")
        self._meeting = self._meetings(body)
        self._leaders = []
        return self._walk(body, ends="return" if whole_kernel else "guard")

    # Statements

    def _walk(self, body: Sequence[Any], ends: str) -> list[Any]:
        """`ends`: how the part after the last shared loop is left to the first lane, where nothing
        comes after this body: `return`, `guard`, or empty where something may come."""
        made: list[Any] = []
        waiting: list[Any] = []

        def flush() -> None:
            if waiting:
                guarded = s.If(self._team.first(), tuple(waiting))
                made.extend(self._synced(waiting, [guarded]))
                waiting.clear()

        for nth, x in enumerate(body):
            rest = body[nth:]
            if ends and self._is_effect(x) and not self._has_team_work(rest):
                flush()
                return [*made, *self._rest(rest, ends)]
            last = ends and nth == len(body) - 1
            if id(x) in self._chosen:
                flush()
                made.extend(self._synced([x], self._split(self._chosen[id(x)], made)))
            elif self._is_leaders(x):
                self._leaders.append(x)
                waiting.append(x)
            else:
                flush()
                made.append(self._one(x, "guard" if last else ""))
        flush()
        return made

    def _rest(self, rest: Sequence[Any], ends: str) -> list[Any]:
        self._leaders.extend(rest)
        wait = [self._team.wait] if self._meets(rest) else []
        if ends == "return":
            return [*wait, Raw(f"if ({self._team.lane} != 0) return;"), *rest]
        return [*wait, s.If(self._team.first(), tuple(rest))]

    def _one(self, x: Any, ends: str) -> Any:
        """A statement that all lanes go through."""
        match x:
            case s.If(condition, yes, no):
                self._refuse_effect(condition)
                return _same_or(x, yes=self._walk(yes, ends), no=self._walk(no, ends))
            case s.For(first, condition, step, inner):
                for part in (*first, condition, *step):
                    self._refuse_effect(part)
                return _same_or(x, body=self._walk(inner, ""))
            case s.Do(inner, condition):
                self._refuse_effect(condition)
                return _same_or(x, body=self._walk(inner, ""))
            case s.Switch(subject, inner):
                self._refuse_effect(subject)
                return _same_or(x, body=self._walk(inner, ""))
            case s.Block(inner):
                return _same_or(x, body=self._walk(inner, ends))
            case s.Opaque(what):
                raise NotUnderstood(f"a {what}")
        if not is_barrier(x):
            self._refuse_effect(x)
        return x

    def _split(self, split: Split, before: Sequence[Any]) -> list[Any]:
        lane, team = self._team.lane, self._team
        apart = [a for a in split.accumulators if neutral(a) and not starts_neutral(before, a)]
        made: list[Any] = []
        if apart:
            zeroed: Any = tuple(Raw(self._zero(a)) for a in apart)
            others: Any = RawExpression(f"{lane} != 0")
            made.append(s.If(others, zeroed))
        head, loop = shared_loop(split, lane, str(team.size))
        if split.scans:
            mask = "" if team.is_block else team.mask
            loop, helpers = scanned(self._draft, split.scans, loop, lane, team.size, mask)
            team.helpers.update(helpers)
        return [*made, *head, loop, *team.combined(split.accumulators)]

    def _zero(self, a: Accumulator) -> str:
        place = self._draft.printer().expression(a.place)
        if a.extent is None:
            return f"{place} = {neutral(a)};"
        element = self._draft.fresh_name("element")
        extent = self._draft.printer().expression(a.extent)
        head = f"for (int {element} = 0; {element} < {extent}; ++{element})"
        return f"{head} {place}[{element}] = {neutral(a)};"

    # What has an effect outside of the thread

    def _stores_in(self, node: Any) -> list[Access]:
        where = getattr(node, "where", None)
        if where is None:
            return []
        return [
            a
            for a in self._loops.facts.accesses
            if a.kind != "read" and a.space != "local" and where.holds(a.where)
        ]

    def _is_effect(self, node: Any) -> bool:
        if isinstance(node, s.Statement) and self._stores_in(node):
            return True
        return any(self._is_effect_here(x) for x in s.below(node))

    def _is_effect_here(self, x: Any) -> bool:
        if isinstance(x, s.Call):
            known = x.function in {*FUNCTIONS, *BARRIERS} or x.function.startswith("operator")
            return not known and self._draft.form.function(x.function) is None
        if isinstance(x, s.Assign | s.Step):
            return self._is_memory(x.target)
        return isinstance(x, s.Opaque | s.Unmodelled)

    def _is_memory(self, place: Any) -> bool:
        if isinstance(place, s.Name):
            declared = self._loops.declared.get(place.text)
            return declared is not None and declared.shared
        return root_of(place) not in self._loops.private or is_pointed_at(place)

    def _refuse_effect(self, node: Any) -> None:
        if node is not None and self._is_effect(node):
            raise NotUnderstood("a value from an operation with a side effect")

    def _has_team_work(self, body: Sequence[Any]) -> bool:
        return any(id(x) in self._chosen or is_barrier(x) for x in s.below(tuple(body)))

    def _is_leaders(self, x: Any) -> bool:
        """Whether the first lane alone may go through a statement."""
        if isinstance(x, s.Declare | s.Refer) or self._has_team_work([x]) or not self._is_effect(x):
            return False
        if any(isinstance(y, s.Leave) and y.word == "return" for y in s.below(x)):
            return False
        if isinstance(x, s.If) and any(isinstance(y, s.Leave) for y in s.below(x)):
            return False
        for y in s.below(x):
            if isinstance(y, s.Call) and not self._is_known(y):
                return False
        written = {
            root_of(y.target)
            for y in s.below(x)
            if isinstance(y, s.Assign | s.Step) and not self._is_memory(y.target)
        }
        return written <= declared_in(x)

    def _is_known(self, call: s.Call) -> bool:
        """Whether a call changes no variable of the thread."""
        name = call.function
        if name in {*FUNCTIONS, *ATOMICS, *_STATEMENTS, "atomicExch", "atomicCAS", "atomicInc"}:
            return True
        if name.startswith("operator") and not name.endswith("="):
            return True
        written = self._loops.written_parameters(name)
        return written == frozenset()

    # What lanes see of each other

    def _meetings(self, body: Sequence[Any]) -> frozenset[str]:
        """Arrays that one lane stores to and another may read. Raises NotUnderstood where other
        threads may store there at any time."""
        begin = min(x.where.start for x in body if x.where is not None)
        end = max(x.where.end for x in body if x.where is not None)
        leaders = [x.where for x in self._leaders]
        accesses = [
            a
            for a in self._loops.facts.accesses
            if a.space != "local" and a.where is not None
            and begin <= a.where.start and a.where.end <= end
        ]  # fmt: skip
        stores = [a for a in accesses if a.kind != "read"]
        found: set[str] = set()
        for store in stores:
            inside = self._loop_of(store)
            for read in accesses:
                alone = any(w.holds(read.where) for w in leaders if w)
                if read is store or (alone and inside is None):
                    continue  # the first lane sees what it did itself
                if read.kind != "read" and not (alone and inside is not None):
                    continue
                if not self._loops.may_meet(store, read):
                    continue
                if inside is not None and inside == self._loop_of(read):
                    continue
                # One lane that reads alone sees what its team stored, as the author's thread saw
                # what it did; with what other threads store there that thread raced too.
                looks = alone and read.kind == "read"
                if store.space != "shared" and not looks and not _is_own(store, read):
                    raise NotUnderstood(f"{read.array}, which other threads may store to")
                found.add(store.array)
        return frozenset(found)

    def _loop_of(self, access: Access) -> s.Range | None:
        return next(
            (
                x.loop.where
                for x in self._chosen.values()
                if x.loop.where is not None and x.loop.where.holds(access.where)
            ),
            None,
        )

    def _meets(self, statements: Sequence[Any]) -> bool:
        return any(a.array in self._meeting for x in statements for a in self._stores_in(x))

    def _synced(self, old: Sequence[Any], new: list[Any]) -> list[Any]:
        return [self._team.wait, *new, self._team.wait] if self._meets(old) else new


def limits(draft: Draft, splits: Iterable[Split], parts: int) -> list[LaunchExpression]:
    """Conditions of a launch: that counters, which go some steps further than the author's, fit
    their types, and that iterations store to different places."""
    found = []
    for x in splits:
        found += [
            draft.launch_expression(n) <= 2**31 - 1 - step * parts for n, step in x.requires
        ]  # fmt: skip
        found += [d.launch_expression(draft.launch_expression) >= 0 for d in x.demands]
    return list(dict.fromkeys(found))


def choose(
    loops: Loops, body: Sequence[Any], wanted: Callable[[s.For], bool], *, inner: bool = False
) -> dict[int, Split]:
    """Loops to share, none within another, by their node's id: the outermost that may be, or the
    innermost."""
    found: dict[int, Split] = {}

    def within(nodes: Iterable[Any]) -> bool:
        """Whether one of them is, or holds, a loop to share: all are looked at."""
        return sum(visit(x) for x in nodes if isinstance(x, s.Statement)) > 0

    def visit(node: Any) -> bool:
        if not isinstance(node, s.For):
            return within(s.children(node))
        if inner and within(node.body):
            return True
        try:
            if wanted(node):
                found[id(node)] = loops.split(node)
                return True
        except NotUnderstood:
            pass
        return not inner and within(node.body)

    for x in body:
        visit(x)
    return found


def _is_own(store: Access, read: Access) -> bool:
    """Whether both touch what is one thread's own, by the form of their places: those of one
    iteration or of another."""
    one, other = _apart_from_loops(store), _apart_from_loops(read)
    if one is None or other is None:
        return False
    apart = (one - other).constant
    steps = [
        step[0].constant
        for a in (store, read)
        for o in a.loops
        if a.offset_bytes is not None and (step := a.offset_bytes.linear_in(o.symbol)) is not None
    ]
    if apart is None or (apart and not any(n and apart % n == 0 for n in steps)):
        return False
    return any(
        isinstance(a, Symbol) and a.name.startswith(("threadIdx.", "blockIdx."))
        for a in one.atoms()
    )


def _apart_from_loops(access: Access) -> Polynomial | None:
    if access.offset_bytes is None:
        return None
    symbols = {o.symbol for o in access.loops}
    kept = Polynomial(tuple((m, c) for m, c in access.offset_bytes.terms if not symbols & set(m)))
    return None if any(kept.has(x) for x in symbols) else kept


def _same_or(node: Any, **parts: list[Any]) -> Any:
    """A statement with other bodies, or itself where they are what it has."""
    changes = {}
    for name, new in parts.items():
        old = getattr(node, name)
        if len(new) != len(old) or any(a is not b for a, b in zip(new, old, strict=True)):
            changes[name] = tuple(new)
    return replace(node, **changes) if changes else node
