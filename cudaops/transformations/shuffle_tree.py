"""Reduction trees in shared memory: the first warp adds up the rest, then its lanes by shuffles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import names_in, root_of, targets_in
from cudaops.program.launch_expression import ZERO, LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.accumulations import accumulation
from cudaops.transformations.base import Setting
from cudaops.transformations.combining import merged
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.lanes import FULL
from cudaops.transformations.liveness import live_after
from cudaops.transformations.splitting import WORDS, Accumulator
from cudaops.transformations.text import Raw
from cudaops.transformations.trees import changed, is_barrier


@dataclass
class _Tree:
    """A loop over halves, with what belongs to it."""

    statements: list[Any]
    """The loop, and the statement of the last warp where there is one."""
    thread: Any
    """The expression that is `threadIdx.x`."""
    size: int
    sums: list[Accumulator]
    """One for each array; `place` is the array."""
    waits_first: bool
    """A barrier begins each round, rather than ends it."""
    counts: bool = False
    """It adds up zeros and ones, one of each thread, and nothing fills the array again."""
    alone: bool = False
    """Of what it counts a thread sees its own element alone: a variable does."""
    before: Any = None
    """The barrier that a vote stands right behind; it is one itself."""


class ShuffleTree:
    """Every round of a tree is a barrier; the first warp needs one for all.

    Legal where the block is as large as the tree, a power of two, and where only element 0 of the
    array is read afterwards, until it is filled again. Trees that keep which one was best are left
    alone: among equal ones they choose by the order of their rounds.
    """

    name = "shuffle_tree"
    title = "warp shuffles instead of a shared-memory tree"
    family: Family = "reduction"
    relieves = frozenset({
        "stall_barrier", "shared_throughput", "stall_short_scoreboard", "stall_mio_throttle",
        "shared_bank_conflicts", "stall_wait",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """All trees at once."""
        return ({"trees": "all"},) if list(_Finder(draft).trees()) else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Guarded by the block's size, and by what the tree's size is computed from."""
        finder = _Finder(draft)
        found = list(finder.trees())
        if not found:
            raise NotUnderstood("no reduction tree in shared memory")
        new = {
            id(x): (Raw("") if n else x) for tree in found for n, x in enumerate(tree.statements)
        }
        bodies = {id(tree.statements[0]): _lines(draft, tree) for tree in found}
        dropped = {i for i, x in new.items() if isinstance(x, Raw)}
        dropped |= {id(tree.before) for tree in found if tree.before is not None}

        counted = {root_of(tree.sums[0].place): tree for tree in found if tree.counts}
        own = {id(y) for tree in found for y in s.below(tuple(tree.statements))}

        def change(x: Any) -> Any:
            if id(x) in bodies:
                return bodies[id(x)]
            match x:
                case s.Index(s.Name(array), at) if array in counted and id(x) not in own:
                    tree = counted[array]
                    if at == s.Number("0"):
                        return s.Name(_count_name(draft, tree))
                    return s.Name(_bit_name(draft, tree)) if tree.alone else x
                case s.Declare(type, name, shared=True) if name in counted and counted[name].alone:
                    return s.Declare(type, _bit_name(draft, counted[name]), value=s.Number("0"))
            return () if id(x) in dropped else x

        made = draft.with_body(changed(draft.form.kernel.body, change))
        unsized = (isinstance(x, s.Declare) and x.unsized for x in s.below(made.form.kernel.body))
        if any(tree.alone for tree in found) and not any(unsized):
            made = made.launched(smem=ZERO)
        says = "Replaced a reduction tree in shared memory by shuffles of the first warp."
        guards = sorted(finder.guards, key=str)
        return made.requiring(*guards).stepped(Step(self.name, setting, says))


def _lines(draft: Draft, tree: _Tree) -> tuple[Any, ...]:
    printer = draft.printer()
    if tree.counts:
        array = printer.expression(tree.sums[0].place)
        own = f"{array}[{printer.expression(tree.thread)}]"
        count = f"__syncthreads_count({_bit_name(draft, tree) if tree.alone else own})"
        return (Raw(f"const int {_count_name(draft, tree)} = {count};"),)
    thread, lines, inner = printer.expression(tree.thread), [], []
    lane, apart = draft.fresh_name("at"), draft.fresh_name("apart")
    for a in tree.sums:
        array = printer.expression(a.place)
        value = draft.fresh_name(f"{array}_{a.kind}")
        lines.append(f"    {a.type} {value} = {array}[{thread}];")
        if tree.size > 32:
            lines.append(
                f"    for (int {lane} = {thread} + 32; {lane} < {tree.size}; {lane} += 32) {{"
            )
            lines += [f"        {merged(a, value, f'{array}[{lane}]')}", "    }"]
        shuffled = f"__shfl_xor_sync({FULL}, {value}, {apart})"
        inner.append(f"        {merged(a, value, shuffled)}")
    lines.append(f"    for (int {apart} = 16; {apart} > 0; {apart} /= 2) {{")
    lines += [*inner, "    }", f"    if ({thread} == 0) {{"]
    for a in tree.sums:
        array = printer.expression(a.place)
        lines.append(f"        {array}[0] = {draft.fresh_name(f'{array}_{a.kind}')};")
    lines.append("    }")
    body = "\n".join([f"if ({thread} < 32) {{", *lines, "}"])
    wait = Raw("__syncthreads();")
    return (*([wait] if tree.waits_first else []), Raw(body), wait)


def _count_name(draft: Draft, tree: _Tree) -> str:
    return draft.fresh_name(f"{root_of(tree.sums[0].place)}_count")


def _bit_name(draft: Draft, tree: _Tree) -> str:
    return draft.fresh_name(f"{root_of(tree.sums[0].place)}_own")


@dataclass
class _Finder:
    """Looks for trees in a kernel."""

    draft: Draft
    guards: set[LaunchExpression] = field(default_factory=set)

    def trees(self) -> Iterator[_Tree]:
        """Those that are proved."""
        block = [self.draft.value(f"blockDim.{axis}") for axis in "xyz"]
        if block[1:] != [1, 1] or not isinstance(block[0], int) or block[0] % 32:
            return
        kernel = self.draft.form.kernel
        yield from self._in(kernel.body, (), block[0])

    def _in(self, body: Sequence[Any], around: tuple[s.For, ...], threads: int) -> Iterator[_Tree]:
        for nth, x in enumerate(body):
            if isinstance(x, s.For):
                known = set(self.guards)
                try:
                    tree = self._tree(x, body[nth + 1 :], threads)
                    self._refuse_reads(tree, body, nth, around)
                    tree.counts = self._counts(tree, body, threads)
                    tree.alone = tree.counts and self._alone(tree)
                    if tree.counts and nth and is_barrier(body[nth - 1]):
                        tree.before = body[nth - 1]
                    yield tree
                    continue
                except NotUnderstood:
                    self.guards = known
                yield from self._in(x.body, (*around, x), threads)
            elif isinstance(x, s.If):
                yield from self._in(x.yes, around, threads)
                yield from self._in(x.no, around, threads)
            elif isinstance(x, s.Block):
                yield from self._in(x.body, around, threads)

    # One tree

    def _tree(self, loop: s.For, after: Sequence[Any], threads: int) -> _Tree:
        name, first = _begun(loop)
        halves = self._halves(loop, name)
        body = [x for x in loop.body if not is_barrier(x)]
        if len(loop.body) != len(body) + 1 or len(body) != 1 or not isinstance(body[0], s.If):
            raise NotUnderstood("no reduction tree")
        barriers = self.draft.facts.barriers
        if any(b.is_divergent and loop.where and loop.where.holds(b.where) for b in barriers):
            raise NotUnderstood("a divergent barrier")
        round_, waits_first = body[0], is_barrier(loop.body[0])
        size = 2 * self._value(first) if halves else self._limit(loop, name)
        if size & (size - 1) or not 32 <= size <= threads:
            raise NotUnderstood("a tree of another size")
        thread = self._thread_of(round_, name, halves)
        sums = [self._sum(x, thread, s.Name(name)) for x in round_.yes]
        if round_.no or not sums or len({repr(a.place) for a in sums}) < len(sums):
            raise NotUnderstood("no reduction tree")
        self.guards.add(self.draft.launch_expression("blockDim.x").equals(threads))
        statements: list[Any] = [loop]
        end = self._value(loop.condition.right) if halves else 0  # type: ignore[union-attr]
        if halves and loop.condition.operator == ">=":  # type: ignore[union-attr]
            end -= 1
        if end:
            if end != 32 or not after or not self._is_tail(after[0], thread, sums):
                raise NotUnderstood("an incomplete reduction tree")
            statements.append(after[0])
        return _Tree(statements, thread, size, sums, waits_first)

    def _halves(self, loop: s.For, name: str) -> bool:
        """Whether the step is to a half, rather than to the double."""
        condition, step = loop.condition, loop.step
        if not isinstance(condition, s.Binary) or condition.left != s.Name(name) or len(step) != 1:
            raise NotUnderstood("no reduction tree")
        match step[0]:
            case s.Assign(s.Name(same), "/" | ">>" as operator, s.Number(by)):
                down = True
            case s.Assign(
                s.Name(same), "", s.Binary("/" | ">>" as operator, s.Name(again), s.Number(by))
            ):
                down = again == same
            case s.Assign(s.Name(same), "*" | "<<" as operator, s.Number(by)):
                down = False
            case _:
                raise NotUnderstood("no reduction tree")
        wanted = "1" if operator in (">>", "<<") else "2"
        right = condition.operator in (">", ">=") if down else condition.operator == "<"
        if same != name or by.rstrip("uU") != wanted or not right:
            raise NotUnderstood("no reduction tree")
        return down

    def _limit(self, loop: s.For, name: str) -> int:
        _, first = _begun(loop)
        if self._value(first) != 1 or not isinstance(loop.condition, s.Binary):
            raise NotUnderstood("no reduction tree")
        return self._value(loop.condition.right)

    def _thread_of(self, round_: s.If, name: str, halves: bool) -> Any:
        """The thread's number in the condition of a round."""
        match round_.condition:
            case s.Binary("<", thread, s.Name(same)) if halves and same == name:
                pass
            case s.Binary(">", s.Name(same), thread) if halves and same == name:
                pass
            case s.Binary("==", s.Binary("%", thread, twice), s.Number("0")) if not halves:
                if twice not in (
                    s.Binary("*", s.Number("2"), s.Name(name)),
                    s.Binary("*", s.Name(name), s.Number("2")),
                ):
                    raise NotUnderstood("no reduction tree")
            case _:
                raise NotUnderstood("no reduction tree")
        if not self._is_thread(thread):
            raise NotUnderstood("a tree that does not cover the block")
        return thread

    def _is_thread(self, node: Any) -> bool:
        while isinstance(node, s.Cast):
            node = node.operand
        if node == s.Member(s.Name("threadIdx"), "x"):
            return True
        return isinstance(node, s.Name) and self._is_thread(self._constant(node.text))

    def _constant(self, name: str) -> Any:
        """What a variable holds that is given a value once."""
        body = self.draft.form.kernel.body
        declared = [x for x in s.below(body) if isinstance(x, s.Declare) and x.name == name]
        if len(declared) != 1 or any(root_of(t) == name for t in targets_in(body)):
            return None
        return None if declared[0].pointer or declared[0].extents else declared[0].value

    def _value(self, node: Any) -> int:
        """Of an expression, at every launch; what it hangs on is guarded."""
        match node:
            case s.Number(text):
                return int(text.rstrip("uUlL"), 0)
            case s.Cast(_, operand):
                return self._value(operand)
            case s.Binary("/", left, right):
                return self._value(left) // max(self._value(right), 1)
            case s.Binary(">>", left, right):
                return self._value(left) >> self._value(right)
            case s.Member(s.Name("blockDim"), axis):
                return self._launched(f"blockDim.{axis}")
            case s.Name(name):
                if any(p.name == name for p in self.draft.form.kernel.parameters):
                    if any(root_of(t) == name for t in targets_in(self.draft.form.kernel.body)):
                        raise NotUnderstood("a size that changes")
                    return self._launched(name)
                return self._value(self._constant(name))
        raise NotUnderstood("unknown size of the reduction tree")

    def _launched(self, name: str) -> int:
        value = self.draft.value(name)
        if not isinstance(value, int):
            raise NotUnderstood("reduction trees of several sizes")
        self.guards.add(self.draft.launch_expression(name).equals(value))
        return value

    def _sum(self, x: Any, thread: Any, apart: Any) -> Accumulator:
        """What one statement of a round does with an array: `a[t] += a[t + s]`."""
        found = accumulation(x)
        if found is None or found.moved or found.kind in ("flag", "best") or len(found.values) != 1:
            raise NotUnderstood("an iteration with other work than the tile")
        place, other = found.place, found.values[0]
        match place, other:
            case s.Index(s.Name(array), at), s.Index(s.Name(same), s.Binary("+", a, b)):
                pass
            case _:
                raise NotUnderstood("an iteration with other work than the tile")
        declared = next((y for y in s.below(self.draft.form.kernel.body)
                         if isinstance(y, s.Declare) and y.name == array), None)  # fmt: skip
        pairs = ((a, b), (b, a))
        if array != same or at != thread or (thread, apart) not in pairs or declared is None:
            raise NotUnderstood("an iteration with other work than the tile")
        if not declared.shared or declared.type not in WORDS or (isinstance(
            x, s.Evaluate
        ) and getattr(x.value, "operator", "") == "-"):  # fmt: skip
            raise NotUnderstood(f"a tree of {declared.type}")
        if declared.is_volatile:
            raise NotUnderstood("volatile memory")
        return Accumulator(s.Name(array), found.kind, declared.type)

    def _is_tail(self, x: Any, thread: Any, sums: Sequence[Accumulator]) -> bool:
        """Whether a statement is the last warp's rounds, from 32 on."""
        if not isinstance(x, s.If) or x.no or x.condition != s.Binary("<", thread, s.Number("32")):
            return False
        rounds = [y for y in x.yes if not is_barrier(y, {"__syncwarp"})]
        aliases = {
            y.name: y.value for y in rounds if isinstance(y, s.Declare) and y.pointer and y.value
        }
        rounds = [y for y in rounds if not isinstance(y, s.Declare)]
        plain = changed(
            tuple(rounds),
            lambda y: aliases[y.text] if isinstance(y, s.Name) and y.text in aliases else y,
        )
        expected = [(n, a) for n in (32, 16, 8, 4, 2, 1) for a in sums]
        if len(plain) != len(expected):
            return False
        for y, (apart, a) in zip(plain, expected, strict=True):
            found = self._sum(y, thread, s.Number(str(apart)))
            if (found.place, found.kind) != (a.place, a.kind):
                return False
        return True

    def _counts(self, tree: _Tree, body: Sequence[Any], threads: int) -> bool:
        """Whether a block's vote does the same."""
        kernel = self.draft.form.kernel.body
        if body is not kernel or len(tree.sums) != 1 or tree.size != threads:
            return False
        a = tree.sums[0]
        own = {id(y) for y in s.below(tuple(tree.statements))}
        if a.kind != "sum" or a.type not in ("int", "unsigned"):
            return False
        mine = s.Index(a.place, tree.thread)
        end = tree.statements[-1].where
        for x in s.below(kernel):
            if id(x) in own:
                continue
            if isinstance(x, s.Assign | s.Step) and root_of(x.target) == root_of(a.place):
                plain = isinstance(x, s.Assign) and not x.operator and x.target == mine
                before = end and x.where and x.where.end <= end.start
                if not plain or not before or not _is_bit(x.value):  # type: ignore[union-attr]
                    return False
            first = isinstance(x, s.Index) and x == s.Index(a.place, s.Number("0"))
            if first and not (end and x.where and x.where.start >= end.end):
                return False
            atomic = isinstance(x, s.Call) and x.function.startswith("atomic")
            if atomic and root_of(a.place) in names_in(x):
                return False
        return True

    def _alone(self, tree: _Tree) -> bool:
        """Whether all else that is said of an array is a thread's own element and the sum."""
        array, own = tree.sums[0].place, {id(y) for y in s.below(tuple(tree.statements))}
        elements = (s.Index(array, tree.thread), s.Index(array, s.Number("0")))
        body = self.draft.form.kernel.body
        named = [x for x in s.below(body) if x == array and id(x) not in own]
        seen = [x for x in s.below(body) if x in elements and id(x) not in own]
        return len(named) == len(seen)

    # What is read afterwards

    def _refuse_reads(
        self, tree: _Tree, body: Sequence[Any], nth: int, around: tuple[s.For, ...]
    ) -> None:
        counter = _begun(tree.statements[0])[0]
        rest = body[nth + len(tree.statements) :]
        for a in tree.sums:
            array = root_of(a.place) or ""
            for x in s.below(self.draft.form.kernel.body):
                another = isinstance(x, s.Refer) or (isinstance(x, s.Declare) and x.pointer)
                if another and array in names_in(x):
                    inside = any(x is y for t in tree.statements for y in s.below(t))
                    if not inside:
                        raise NotUnderstood(f"{array} under another name")
                if isinstance(x, s.Call) and any(_is_whole(y, array) for y in x.arguments):
                    raise NotUnderstood(f"{array}, which is passed to a function")
            filled = self._is_read(rest, array, tree.thread)
            again = around and not filled
            if again and not (
                around[-1].body is body and self._is_read(body[:nth], array, tree.thread)
            ):
                raise NotUnderstood(f"{array}, which the next iteration may read")
            if not filled or around:
                end = (around[0] if around else tree.statements[-1]).where
                self._refuse_later(array, end)
        if live_after(self.draft.form.kernel.body, tree.statements[0], counter):
            raise NotUnderstood(f"{counter}, which is used later")

    def _is_read(self, body: Sequence[Any], array: str, thread: Any) -> bool:
        """Whether the array is filled again by these statements; raises where one of them reads
        another element than the first before."""
        for x in body:
            match x:
                case s.Evaluate(s.Assign(s.Index(s.Name(same), at), "", value)) if (
                    same == array and at == thread
                ):
                    self._refuse_others(value, array)
                    return True
            self._refuse_others(x, array)
        return False

    def _refuse_others(self, node: Any, array: str) -> None:
        for x in s.below(node):
            if isinstance(x, s.Index) and root_of(x) == array and x.index != s.Number("0"):
                raise NotUnderstood(f"{array}, of which other elements than the sum are used")

    def _refuse_later(self, array: str, end: s.Range | None) -> None:
        if end is None:
            raise NotUnderstood("the reduction tree was not found")
        if any(
            a.array == array and a.where and a.where.start >= end.end and a.kind == "read"
            and (a.offset_bytes is None or a.offset_bytes.constant != 0)
            for a in self.draft.facts.accesses
        ):  # fmt: skip
            raise NotUnderstood(f"{array}, of which other elements than the sum are used")


def _is_bit(x: Any) -> bool:
    """Whether an expression is 0 or 1."""
    match x:
        case s.Number(text):
            return text.rstrip("uU") in ("0", "1")
        case s.Choice(_, yes, no):
            return _is_bit(yes) and _is_bit(no)
        case s.Binary(operator):
            return operator in ("<", ">", "<=", ">=", "==", "!=", "&&", "||")
        case s.Unary(operator):
            return operator == "!"
    return False


def _begun(loop: s.For) -> tuple[str, Any]:
    """A loop's counter and what it begins with."""
    match loop.first:
        case (s.Declare(name=name, value=value),) if value is not None:
            return name, value
        case (s.Evaluate(s.Assign(s.Name(name), "", value)),):
            return name, value
    raise NotUnderstood("an unsupported loop initialisation")


def _is_whole(argument: Any, array: str) -> bool:
    """Whether an argument is the array itself, or a place in it."""
    if isinstance(argument, s.Unary) and argument.operator == "&":
        return root_of(argument.operand) == array
    if isinstance(argument, s.Binary | s.Cast | s.Name):
        return root_of(argument) == array and not isinstance(argument, s.Index)
    return False
