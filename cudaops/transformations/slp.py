"""Elements side by side that straight-line code reads one by one, as one load of a vector type.

    sum += x[i] + x[i + 1] + x[i + 2] + x[i + 3];

reads sixteen bytes of one line: `float4 x_vector = *reinterpret_cast<const float4*>(&x[i])`, and
its members are what stands in the sum. Compilers call it superword-level parallelism (Larsen and
Amarasinghe, 2000). All elements of a vector are read anyway, on the same way through the text and
with no write between them; where the first begins is aligned as in `vectorise`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import is_pure, may_write, names_in, pure_functions, root_of
from cudaops.program.analysis.polynomials import Polynomial, Symbol, number
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Allocations
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.trees import bodies_of, changed, statements
from cudaops.transformations.variables import Variables
from cudaops.transformations.vectors import MOST_BYTES, VECTORS, Alignment, reinterpreted


class _Read(NamedTuple):
    """One element that a statement of a run reads in any case."""

    node: s.Index
    array: str
    base: Polynomial
    """Its index but for the constant."""
    at: int
    """The constant."""
    statement: int
    """Which of the run."""


class Slp:
    """Vector loads for elements that straight-line code reads side by side."""

    name = "slp"
    title = "vector loads of adjacent elements"
    family: Family = "vector_loads"
    relieves = frozenset({
        "issue_slots", "stall_lg_throttle", "stall_long_scoreboard", "dram_bandwidth",
        "l1_load_throughput", "low_parallelism", "uncoalesced_access", "l2_bandwidth",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Everything at once, where two elements of an array may be neighbours."""
        arrays = [p.name for p in draft.form.kernel.parameters if p.is_pointer]
        read = [
            x.base.text for x in s.below(draft.form.kernel.body)
            if isinstance(x, s.Index) and isinstance(x.base, s.Name)
        ]  # fmt: skip
        return ({"what": "all"},) if any(read.count(a) > 1 for a in arrays) else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All runs of statements. Raises NotUnderstood where none reads a whole vector."""
        packed = _Packed(draft)
        body: Any = draft.form.kernel.body
        for run in list(packed.runs(body)):
            body = packed.replaced(body, run)
        if not packed.arrays:
            raise NotUnderstood(packed.why or "no adjacent elements are loaded")
        names = ", ".join(dict.fromkeys(packed.arrays))
        step = Step(self.name, setting, f"Elements of {names} are loaded as vectors.")
        done = draft.with_body(body).requiring(*packed.requires).stepped(step)
        _ = done.form
        return done


class _Packed:
    """Runs of statements as they are changed, with what must hold for it."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._allocations = Allocations(draft)
        self._variables = Variables(draft)
        self._alignment = Alignment(draft, self._variables)
        self._pure = pure_functions(draft.form)
        self._kinds = {
            p.name: p.type for p in draft.form.kernel.parameters
            if p.is_pointer and p.type in VECTORS and not self._variables.is_changed(p.name)
        }  # fmt: skip
        self._taken: set[str] = set()
        self.requires: list[LaunchExpression] = []
        self.arrays: list[str] = []
        self.why = ""

    def runs(self, body: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Statements one after another that compute and write nothing but variables of the thread's
        and elements of arrays that none of them reads."""
        lists = [tuple(body)]
        for statement in statements(body):
            if not isinstance(statement, s.Switch):  # no label may jump over a declaration
                lists += bodies_of(statement)
        for one in lists:
            run: list[Any] = []
            for statement in one:
                if self._is_plain(statement):
                    run.append(statement)
                    continue
                yield tuple(run)
                run = []
            yield tuple(run)

    def _is_plain(self, statement: Any) -> bool:
        match statement:
            case s.Declare(pointer=False, extents=(), shared=False, value=value):
                return value is None or is_pure(value, self._pure)
            case s.Evaluate(s.Assign(s.Name(), _, value)):
                return is_pure(value, self._pure)
            case s.Evaluate(s.Assign(s.Index(s.Name(), index), _, value)):
                return is_pure(index, self._pure) and is_pure(value, self._pure)
        return False

    def replaced(self, body: Any, run: Sequence[Any]) -> Any:
        """With the vectors that this run reads."""
        members: dict[int, Any] = {}
        before: dict[int, list[Any]] = {}
        groups: dict[tuple[str, Polynomial], dict[int, list[_Read]]] = {}
        for read in self._reads(run):
            groups.setdefault((read.array, read.base), {}).setdefault(read.at, []).append(read)
        for (array, base), places in groups.items():
            try:
                self._refuse_writes(run, array, base, places)
            except NotUnderstood as error:
                self.why = self.why or str(error)
                continue
            for first, width in self._vectors(array, base, sorted(places)):
                reads = [read for at in range(first, first + width) for read in places[at]]
                name = self._draft.fresh_name_beside(f"{array}_vector", self._taken)
                where = min(read.statement for read in reads)
                index = min(places[first], key=lambda read: read.statement).node.index
                before.setdefault(where, []).append(self._load(array, width, name, index))
                self.arrays.append(array)
                for read in reads:
                    members[id(read.node)] = s.Member(s.Name(name), "xyzw"[read.at - first])
        loaded = {id(run[at]): tuple(loads) for at, loads in before.items()}
        body = changed(body, lambda x: (*loaded[id(x)], x) if id(x) in loaded else x)
        return changed(body, lambda x: members.get(id(x), x)) if members else body

    def _reads(self, run: Sequence[Any]) -> Iterator[_Read]:
        for at, statement in enumerate(run):
            target = None
            if isinstance(statement, s.Evaluate) and isinstance(statement.value, s.Assign):
                target = statement.value.target
            for node in _always(statement):
                if node is target or not isinstance(node.base, s.Name):
                    continue
                array = node.base.text
                index = self._variables.polynomial(node.index) if array in self._kinds else None
                if index is None:
                    continue
                constant = dict(index.terms).get((), 0)
                yield _Read(node, array, index - number(constant), constant, at)

    def _refuse_writes(
        self, run: Sequence[Any], array: str, base: Polynomial, places: dict[int, list[_Read]]
    ) -> None:
        """From the first read to the last nothing changes the elements or where they are."""
        met = [read.statement for reads in places.values() for read in reads]
        names = {a.name for a in base.atoms() if isinstance(a, Symbol)}
        for reads in places.values():
            names |= {name for read in reads for name in names_in(read.node.index)}
        for statement in run[min(met) : max(met) + 1]:
            if may_write(statement, names, self._draft.form):
                raise NotUnderstood(f"an address of {array} that is modified in between")
            if isinstance(statement, s.Evaluate) and isinstance(statement.value, s.Assign):
                target = statement.value.target
                written = root_of(target) if isinstance(target, s.Index) else None
                if written is not None and not self._is_apart(written, array):
                    raise NotUnderstood(f"{written} may alias {array}")

    def _is_apart(self, written: str, array: str) -> bool:
        declared = self._variables.declared(written)
        own = declared is not None and not declared.pointer
        return own or self._allocations.apart(written, array)

    def _vectors(
        self, array: str, base: Polynomial, places: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """First element and width of the widest vectors that are whole and aligned."""
        size = VECTORS[self._kinds[array]][1]
        left = set(places)
        for width in (4, 2):
            if width * size > MOST_BYTES:
                continue
            starts = [at for at in places if at % width == 0 and left >= set(range(at, at + width))]
            if not starts:
                continue
            try:
                asked = [*self._alignment.whole_vectors(array, width * size)]
                asked += self._alignment.of(base, width)
            except NotUnderstood as error:
                self.why = self.why or str(error)
                continue
            self.requires += asked
            for at in starts:
                left -= set(range(at, at + width))
                yield at, width

    def _load(self, array: str, width: int, name: str, index: Any) -> Any:
        vector = f"{VECTORS[self._kinds[array]][0]}{width}"
        place = s.Index(s.Name(array), index)
        return s.Declare(vector, name, value=reinterpreted(f"const {vector}*", place))


def _always(node: Any) -> Iterator[s.Index]:
    """Elements that a statement reads or writes whichever way its conditions turn out."""
    match node:
        case s.Choice(condition, _, _):
            yield from _always(condition)
            return
        case s.Binary("&&" | "||", left, _):
            yield from _always(left)
            return
        case s.Unary("&"):
            return
        case s.Index():
            yield node
    names = () if isinstance(node, tuple) else s.field_names(type(node)) or ()
    for part in node if isinstance(node, tuple) else (getattr(node, name) for name in names):
        if isinstance(part, tuple) or s.field_names(type(part)) is not None:
            yield from _always(part)
