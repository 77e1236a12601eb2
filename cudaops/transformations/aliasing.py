"""Which memory the pointers of a launch lead to, and which accesses can touch the same bytes.

Two pointers that a kernel is given are apart where every captured launch gave them different
allocations: that is a fact about the program, which hands out its buffers in the same way whatever
their sizes; a plan cannot say it. Two pointers into one allocation may meet. What a plan can ask
again at every launch is whether two pointers are the same one (`Memory.differ`).
"""

from __future__ import annotations

from cudaops.domain.workload import NullArgument
from cudaops.program.analysis.facts import Access
from cudaops.program.analysis.intervals import Interval, of_polynomial
from cudaops.program.analysis.polynomials import Symbol
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft


class Allocations:
    """Of a draft's kernel: what each pointer leads to at every captured launch."""

    def __init__(self, draft: Draft) -> None:
        self._modules = {
            _base(a.array): frozenset({f"module {_base(a.array)}"})
            for a in draft.facts.accesses
            if a.space == "module" and a.array
        }
        lent = _scratch_of(draft)
        self.launches: list[dict[str, frozenset[str]]] = []
        """By parameter, field (`p.data`) or module variable; nothing for a null pointer."""
        for workload in draft.workloads:
            at = {
                a.name: frozenset[str]() for a in workload.arguments if isinstance(a, NullArgument)
            }
            at |= self._modules | lent
            for pointer in workload.pointers():
                base = _base(pointer.name)
                at[base] = at.get(base, frozenset()) | {str(pointer.allocation)}
            self.launches.append(at)

    @property
    def pointers(self) -> tuple[str, ...]:
        """Those that lead somewhere at a launch: parameters, and fields of structures."""
        given = (n for at in self.launches for n in at if at[n] and n not in self._modules)
        return tuple(dict.fromkeys(given))

    def is_given(self, array: str) -> bool:
        """Whether it leads somewhere at every launch."""
        return all(at.get(_base(array)) for at in self.launches)

    def apart(self, one: str, other: str) -> bool:
        """Whether two arrays never share memory; not where either is none that is known."""
        one, other = _base(one), _base(other)
        return one != other and all(
            one in at and other in at and at[one].isdisjoint(at[other]) for at in self.launches
        )

    def share(self, one: str, other: str) -> bool:
        """Whether they are seen to: at some captured launch."""
        one, other = _base(one), _base(other)
        return one == other or any(
            not at.get(one, frozenset()).isdisjoint(at.get(other, frozenset()))
            for at in self.launches
        )


def _base(array: str) -> str:
    """Of an array of pointers: all of them as one."""
    return array.partition("[")[0]


def _scratch_of(draft: Draft) -> dict[str, frozenset[str]]:
    """By parameter: the plan's own memory that it is given."""
    scratch = {name for name, _ in draft.scratch}
    names = [p.name for p in draft.kernel.parameters]
    found = {}
    for name, argument in zip(names, draft.launch.args, strict=True):
        if used := scratch & argument.names():
            found[name] = frozenset(f"scratch {x}" for x in used)
    return found


class Aliasing:
    """What a kernel's accesses have in common."""

    def __init__(self, draft: Draft) -> None:
        self._facts = draft.facts
        self._allocations = Allocations(draft)

    def apart(self, one: Access, other: Access) -> bool:
        """Whether no byte can be in both, whatever iterations they are of: offsets may share only
        unknowns that are the same for both."""
        if "unknown" in (one.space, other.space) or not one.array or not other.array:
            return False
        if one.space != other.space:
            return True
        if one.array != other.array:
            return one.space != "global" or self._allocations.apart(one.array, other.array)
        return self._offsets_apart(one, other)

    def _offsets_apart(self, one: Access, other: Access) -> bool:
        a, b = one.offset_bytes, other.offset_bytes
        if a is None or b is None or not one.element_bytes or not other.element_bytes:
            return False
        between = of_polynomial(b - a, self._interval)
        above = between.low is not None and between.low >= one.element_bytes
        below = between.high is not None and between.high <= -other.element_bytes
        if above or below:
            return True
        return b == a and bool(one.member and other.member) and _fields_differ(one, other)

    def _interval(self, unknown: Symbol) -> Interval:
        found = self._facts.unknowns.get(unknown.name)
        return found.interval if found else Interval()


def _fields_differ(one: Access, other: Access) -> bool:
    """Of one structure: neither is a part of the other."""
    a, b = f"{one.member}.", f"{other.member}."
    return not a.startswith(b) and not b.startswith(a)


class Memory:
    """What a launch writes, and what of its memory nothing in it writes."""

    def __init__(self, draft: Draft) -> None:
        facts = draft.facts
        self._draft = draft
        self._allocations = Allocations(draft)
        if any(len(w.arguments) < _arguments_wanted(draft) for w in draft.workloads):
            raise NotUnderstood("an unknown argument")
        self.written = {
            _base(a.array) for a in facts.accesses
            if a.kind != "read" and a.space in ("global", "module")
        }  # fmt: skip
        """Parameters, fields (`p.data`) and module variables that are written through."""
        self.is_unclear = bool(facts.unmodelled) or any(
            a.kind != "read" and (a.space == "unknown" or not a.array) for a in facts.accesses
        )
        """Whether something may be written that is not known."""
        self.is_followed = not self.is_unclear and all(
            a.array and a.space != "unknown" for a in facts.accesses
        )
        """Whether every access is known to go through a pointer that has a name."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """Every pointer that leads somewhere at a launch: parameters, and fields of structures."""
        return self._allocations.pointers

    def are_apart(self, one: str, other: str) -> bool:
        """See `Allocations.apart`."""
        return self._allocations.apart(one, other)

    def is_read_only(self, array: str) -> bool:
        """Whether nothing in the launch writes it."""
        if self.is_unclear or _base(array) in self.written:
            return False
        return all(self.are_apart(array, other) for other in self.written)

    def differ(self, one: str, other: str) -> LaunchExpression | None:
        """The condition that two pointers are not the same one; None where no plan can say it."""
        pointers = self._draft.author_argument(one), self._draft.author_argument(other)
        return None if pointers[0] is None or pointers[1] is None else (
            pointers[0].differs(pointers[1])
        )  # fmt: skip


def _arguments_wanted(draft: Draft) -> int:
    """How many arguments of a launch stand among its workload's: all but the plan's own memory."""
    return len(draft.kernel.parameters) - len(_scratch_of(draft))
