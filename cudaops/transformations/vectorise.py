"""Neighbouring elements that a thread touches one by one, as one access of a vector type.

    for (int item = 0; item < 4; ++item) x[item] = in[i * 4 + item];

reads sixteen bytes of one line: `*reinterpret_cast<const float4*>(&in[i * 4])`. The first element's
index must be a multiple of the vector: seen in its polynomial, or made so by a condition on the
parameters in it. Arrays begin at addresses that every captured launch gives as whole vectors;
allocations of CUDA do. A pointer that the host moved by an odd number of elements is not taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import changed_variables, is_pure, names_in, pure_functions
from cudaops.program.analysis.polynomials import Symbol, number
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Allocations
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.trees import swapped
from cudaops.transformations.variables import Variables
from cudaops.transformations.vectors import MOST_BYTES, VECTORS, Alignment, reinterpreted


@dataclass(frozen=True)
class _Loop:
    """`for (int item = 0; item < count; ++item)`."""

    node: s.For
    item: str
    count: int


@dataclass(frozen=True)
class _Access:
    """One statement of such a loop that is a vector access over all its iterations."""

    statement: s.Evaluate
    array: str
    kind: str
    width: int
    """Elements a vector."""
    index: Any
    first: Any
    """The first element's index, as an expression outside of the loop."""
    local: Any
    """What is loaded into, or the value that is stored."""
    is_load: bool


class Vectorise:
    """Vector loads and stores for loops over adjacent elements."""

    name = "vectorise"
    title = "vector loads and stores"
    family: Family = "vector_loads"
    relieves = frozenset({
        "issue_slots", "stall_lg_throttle", "stall_long_scoreboard", "dram_bandwidth",
        "l1_load_throughput", "low_parallelism", "uncoalesced_access", "l2_bandwidth",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Everything at once, where there is a loop that could do."""
        body = draft.form.kernel.body
        found = any(_loop(x) is not None for x in s.below(body) if isinstance(x, s.For))
        return ({"what": "all"},) if found else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All such loops. Raises NotUnderstood where none has an access that is proved aligned."""
        body: Any = draft.form.kernel.body
        told = _Told(draft)
        for node in [x for x in s.below(body) if isinstance(x, s.For)]:
            loop = _loop(node)
            if loop is not None:
                lines = told.widened(loop)
                if lines is not None:
                    body = swapped(body, node, lines)
        if not told.arrays:
            raise NotUnderstood(told.why or "no loop over adjacent elements")
        names = ", ".join(dict.fromkeys(told.arrays))
        step = Step(
            self.name, setting, f"Adjacent elements of {names} are loaded and stored as vectors."
        )
        done = draft.with_body(body).requiring(*told.requires).stepped(step)
        _ = done.form
        return done


def _loop(node: s.For) -> _Loop | None:
    match node.first, node.condition, node.step:
        case (
            (s.Declare(_, item, value=s.Number("0")),),
            s.Binary("<", s.Name(tested), s.Number(text)),
            (s.Step(s.Name(stepped), 1),),
        ) if item == tested == stepped:
            count = int(text) if text.isdigit() else 0
            return _Loop(node, item, count) if count in (2, 4, 8, 16) else None
    return None


class _Told:
    """Loops as they are widened, with what must hold for it."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._allocations = Allocations(draft)
        self._variables = Variables(draft)
        self._alignment = Alignment(draft, self._variables)
        self._arrays = {p.name: p for p in draft.form.kernel.parameters if p.is_pointer}
        self._taken: set[str] = set()
        self._pure = pure_functions(draft.form)
        self.requires: list[LaunchExpression] = []
        self.arrays: list[str] = []
        self.why = ""

    def widened(self, loop: _Loop) -> tuple[Any, ...] | None:
        """What stands in the loop's place; None where nothing of it is a vector access."""
        before: list[Any] = []
        after: list[Any] = []
        body = list(loop.node.body)
        try:
            self._refuse_other_work(loop)
        except NotUnderstood as error:
            self.why = self.why or str(error)
            return None
        for at, statement in enumerate(loop.node.body):
            try:
                access = self._access(loop, statement)
                self._refuse_other_order(loop, at, access)
            except NotUnderstood as error:
                self.why = self.why or str(error)
                continue
            where = body.index(statement)
            self.arrays.append(access.array)
            if access.is_load:
                before += self._loads(access, loop.count)
                del body[where]
            else:
                name = self._draft.fresh_name_beside(f"{access.array}_items", self._taken)
                size = s.Number(str(loop.count))
                before.append(s.Declare(access.kind, name, extents=(size,)))
                place = s.Index(s.Name(name), s.Name(loop.item))
                body[where] = s.Evaluate(s.Assign(place, "", access.local), where=statement.where)
                after += self._stores(access, name, loop.count)
        if not before and not after:
            return None
        body = _used(body)
        return (*before, *((replace(loop.node, body=tuple(body)),) if body else ()), *after)

    def _refuse_other_work(self, loop: _Loop) -> None:
        """All that the loop may do is to compute and to assign elements."""
        own = {x.name for x in loop.node.body if isinstance(x, s.Declare)}
        for statement in loop.node.body:
            match statement:
                case s.Declare(_, _, False, (), False, value) if value is not None:
                    parts: tuple[Any, ...] = (value,)
                case s.Declare(_, _, False, (), False, None):
                    parts = ()
                case s.Evaluate(s.Assign(s.Index(s.Name(), index), _, value)):
                    parts = (index, value)
                case s.Evaluate(s.Assign(s.Name(name), _, value)) if name in own:
                    parts = (value,)
                case _:
                    raise NotUnderstood("a loop that does more than to assign elements")
            if not all(is_pure(p, self._pure) for p in parts):
                raise NotUnderstood("a loop that does more than to compute")
            if any(
                isinstance(x, s.Unary) and x.operator in "*&" for p in parts for x in s.below(p)
            ):
                raise NotUnderstood("pointers of unknown target")

    def _refuse_other_order(self, loop: _Loop, at: int, access: _Access) -> None:
        """A load goes before the loop and a store behind it: nothing else may touch the elements,
        but for the same one in the same iteration. Arrays that no captured launch has in one
        allocation are apart."""
        position = self._variables.polynomial(access.index, loop.item)
        for place, is_write, where in _touched(loop.node.body):
            name = place.base.text if isinstance(place.base, s.Name) else ""
            declared = self._variables.declared(name)
            if declared is not None and not declared.pointer:
                loaded = access.is_load and access.local == s.Name(name)
                if loaded and (where != at if is_write else where <= at):
                    raise NotUnderstood(f"{name} is used before it is loaded")
                continue
            if name not in self._arrays or self._variables.is_changed(name):
                raise NotUnderstood("a pointer of unknown target")
            if (access.is_load and not is_write) or self._allocations.apart(name, access.array):
                continue
            if is_write and not access.is_load and where == at:
                continue
            same = self._variables.polynomial(place.index, loop.item) == position
            earlier = where < at if is_write else where > at
            if name != access.array or not same or earlier or (is_write and not access.is_load):
                raise NotUnderstood(f"{name} is accessed elsewhere in the loop")

    def _access(self, loop: _Loop, statement: Any) -> _Access:
        match statement:
            case s.Evaluate(s.Assign(target, "", value)):
                pass
            case _:
                raise NotUnderstood("no assignment")
        match target, value:
            case s.Index(s.Name(local), s.Name(item)), s.Index(s.Name(array), index) if (
                item == loop.item and array in self._arrays
            ):  # fmt: skip
                declared = self._variables.declared(local)
                if declared is None or [_plain(e) for e in declared.extents] != [str(loop.count)]:
                    raise NotUnderstood(f"{local} is not an array of the thread")
                if declared.shared or declared.type != self._arrays[array].type:
                    raise NotUnderstood(f"{local} is of another type")
                return self._vector(loop, statement, array, index, s.Name(local), is_load=True)
            case s.Index(s.Name(array), index), _ if array in self._arrays:
                return self._vector(loop, statement, array, index, value, is_load=False)
        raise NotUnderstood("no access to a buffer of the launch")

    def _vector(
        self, loop: _Loop, statement: s.Evaluate, array: str, index: Any, local: Any, *,
        is_load: bool,
    ) -> _Access:  # fmt: skip
        kind = self._arrays[array].type
        if kind not in VECTORS:
            raise NotUnderstood(f"no vectors of {kind}")
        size = VECTORS[kind][1]
        width = min(loop.count, MOST_BYTES // size, 4)
        if width < 2 or self._variables.is_changed(array):
            raise NotUnderstood(f"{array} is moved, or its elements are as wide as a vector")
        self.requires += self._alignment.whole_vectors(array, width * size)
        position = self._variables.polynomial(index, loop.item)
        parts = None if position is None else position.linear_in(Symbol(loop.item))
        if position is None or parts is None or parts[0] != number(1):
            raise NotUnderstood(f"{array}'s elements are not proved adjacent")
        inside = {x.name for x in s.below(loop.node.body) if isinstance(x, s.Declare)}
        used = {a.name for a in position.atoms() if isinstance(a, Symbol)}
        if used & inside or changed_variables(loop.node.body, self._draft.form) & used:
            raise NotUnderstood(f"{array}'s elements depend on what the loop computes")
        self.requires += self._alignment.of(parts[1], width)
        first = self._variables.inlined(index, {loop.item: s.Number("0", type="int")})
        return _Access(statement, array, kind, width, index, first, local, is_load)

    def _places(self, access: _Access, count: int) -> Iterator[tuple[int, Any]]:
        """(first item, its index) of every vector."""
        for at in range(0, count, access.width):
            first = access.first
            yield at, first if at == 0 else s.Binary("+", first, s.Number(str(at)))

    def _loads(self, access: _Access, count: int) -> Iterator[Any]:
        vector = f"{VECTORS[access.kind][0]}{access.width}"
        for at, index in self._places(access, count):
            name = self._draft.fresh_name_beside(f"{access.array}_vector", self._taken)
            place = s.Index(s.Name(access.array), index)
            yield s.Declare(vector, name, value=reinterpreted(f"const {vector}*", place))
            for lane, member in zip(range(access.width), "xyzw", strict=False):
                target = s.Index(access.local, s.Number(str(at + lane)))
                yield s.Evaluate(s.Assign(target, "", s.Member(s.Name(name), member)))

    def _stores(self, access: _Access, name: str, count: int) -> Iterator[Any]:
        vector = f"{VECTORS[access.kind][0]}{access.width}"
        for at, index in self._places(access, count):
            items = tuple(
                s.Index(s.Name(name), s.Number(str(at + lane))) for lane in range(access.width)
            )
            target = reinterpreted(f"{vector}*", s.Index(s.Name(access.array), index))
            yield s.Evaluate(s.Assign(target, "", s.Call(f"make_{vector}", items)))


def _plain(node: Any) -> str:
    return node.text if isinstance(node, s.Number) else ""


def _touched(body: Sequence[Any]) -> Iterator[tuple[s.Index, bool, int]]:
    """Every element that a loop's statements name: where it stands, whether it is written, and in
    which statement."""
    for at, statement in enumerate(body):
        target = None
        if isinstance(statement, s.Evaluate) and isinstance(statement.value, s.Assign):
            target = statement.value.target
            if isinstance(target, s.Index):
                yield target, True, at
                if statement.value.operator:
                    yield target, False, at
        for node in s.below(statement):
            if isinstance(node, s.Index) and node is not target:
                yield node, False, at


def _used(body: Sequence[Any]) -> list[Any]:
    """Without declarations that nothing uses any more; nothing where only declarations are left."""
    left = list(body)
    while True:
        names = {n for x in left for n in names_in(x)}
        kept = [x for x in left if not isinstance(x, s.Declare) or x.name in names]
        if len(kept) == len(left):
            break
        left = kept
    return left if any(not isinstance(x, s.Declare) for x in left) else []
