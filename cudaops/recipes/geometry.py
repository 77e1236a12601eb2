"""Other block sizes for a kernel that does not care how its threads are grouped.

A thread that knows its place only as `blockIdx.d * blockDim.d + threadIdx.d`, that talks to no
other thread and waits for none, cannot tell how it was grouped. The same set of places then does
the same work. Where the kernel bounds a place, those above the bound do nothing and may be added.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cudaops.domain.hypothesis import Family
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.program import syntax as s
from cudaops.program.analysis.polynomials import Polynomial, Symbol, number, symbol
from cudaops.program.launch_expression import ONE, LaunchExpression, Variable, ceil_div, product
from cudaops.program.plans import MAX_THREADS
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.reading.expressions import MATHEMATICS, Around, Expressions
from cudaops.recipes.reading.kernel import form_of
from cudaops.recipes.reading.values import (
    INTEGERS,
    Below,
    Value,
    Whole,
    conjuncts,
    converted,
    negated,
)
from cudaops.recipes.spelling import free_name, written

_ATOMICS = frozenset({
    "atomicAdd", "atomicSub", "atomicMin", "atomicMax", "atomicAnd", "atomicOr", "atomicXor",
})  # fmt: skip
"""Taken as statements only, where nobody looks at the old value."""
_TALKATIVE = frozenset({"asm", "warpSize", "clock", "clock64", "printf", "assert", "__trap"})

_VALUES: Mapping[int, Mapping[str, tuple[int, ...]]] = {
    1: {"x": (256, 128, 512, 64, 1024, 32)},
    2: {"x": (32, 64, 16, 128, 256, 8), "y": (8, 4, 16, 2, 1, 32)},
    3: {"x": (32, 64, 16, 128, 8), "y": (4, 2, 8, 1), "z": (2, 1, 4)},
}
_LINKAGE = re.compile(r'\bextern\s*"C"\s*(?!\{)')
"""How a function's name is spelled for the linker: says nothing about what it computes."""
_WARP = 32


@dataclass(frozen=True)
class Freedom:
    """How the kernel may be regrouped."""

    axes: str
    """Dimensions it uses: `x`, `xy`, ..."""
    extents: dict[str, Polynomial] = field(default_factory=dict)
    """Dimension to the bound above which places do nothing; a dimension without one must keep
    its number of places exactly."""
    most_threads: int | None = None
    """From `__launch_bounds__`."""


def prove_free(program: Program, kernel: Kernel, workloads: Sequence[Workload]) -> Freedom:
    """The freedom there is. Raises NotUnderstood where it is not proven."""
    if kernel.uses_dynamic_shared or kernel.qualified_name != kernel.plain_name:
        raise NotUnderstood("dynamic shared memory or a namespace")
    form = form_of(program, kernel, workloads)
    proof = _Proof(form)
    proof.check(form.kernel.body)
    if not proof.axes:
        raise NotUnderstood("no global thread index in the kernel")
    axes = "".join(axis for axis in "xyz" if axis in proof.axes)
    bounds = {} if proof.strides else _bounds(form.kernel)
    extents = {axis: bound for axis, bound in bounds.items() if axis in proof.axes}
    return Freedom(axes, extents, next(iter(form.kernel.launch_bounds), None))


class _Proof:
    """Looks at every expression of a body for other uses of the thread's numbers."""

    def __init__(self, form: s.KernelForm) -> None:
        self._functions = {f.name: f for f in form.functions}
        self._env: dict[str, Value] = {}
        self.axes: set[str] = set()
        self.strides = False
        """Whether the whole number of threads is used, as in a grid-stride loop."""

    def check(self, body: tuple[s.Statement, ...]) -> None:
        """Raise NotUnderstood for anything that could tell how threads are grouped."""
        for statement in body:
            self._statement(statement)

    def _statement(self, node: s.Statement) -> None:
        match node:
            case s.Declare(shared=True):
                raise NotUnderstood("shared memory")
            case s.Opaque(what):
                raise NotUnderstood(what)
            case s.Refer():
                raise NotUnderstood("a reference")
            case s.Declare(kind, name, False, (), False, value) if value is not None:
                self._declare(kind, name, value)
            case s.Evaluate(s.Call(function, arguments)) if function in _ATOMICS:
                for argument in arguments:
                    self._expression(argument)
            case _:
                for child in s.children(node):
                    if isinstance(child, s.Statement):
                        self._statement(child)
                    else:
                        self._expression(child)

    def _declare(self, kind: str, name: str, value: s.Expression) -> None:
        """A name for a thread's own number is that number wherever it stands."""
        if name in self._env:
            raise NotUnderstood(f"a second {name}")
        found = self._place(value)
        if found is None or kind not in INTEGERS | {"auto"} or _is_free(found):
            self._expression(value)
            return
        self._env[name] = Whole(found, "unsigned")

    def _expression(self, node: s.Expression) -> None:
        found = self._place(node)
        if found is not None:
            if not _is_free(found):
                raise NotUnderstood("use of the thread index within its block")
            self._note(found)
            return
        match node:
            case s.Unmodelled(what):
                raise NotUnderstood(what)
            case s.Name(text) if text in self._env or text in s.BUILTINS | _TALKATIVE:
                raise NotUnderstood(f"{text} on its own")
            case s.Assign(s.Name(text), _, _) | s.Step(s.Name(text), _) if text in self._env:
                raise NotUnderstood(f"{text} changed")
            case s.Binary("+" | "-"):
                self._sum(node)
                return
            case s.Call(function, _):
                self._call(function)
        for child in s.children(node):
            if isinstance(child, s.Expression):
                self._expression(child)

    def _sum(self, node: s.Binary) -> None:
        """The thread's numbers among the terms of a sum, in whatever order."""
        total = Polynomial()
        for sign, term in _terms(node):
            found = self._place(term)
            if found is None:
                self._expression(term)
            else:
                total = total + found * number(sign)
        if not _is_free(total):
            raise NotUnderstood("use of the thread index within its block")
        self._note(total)

    def _place(self, node: s.Expression) -> Polynomial | None:
        """The expression over the launch's own numbers alone; None for any other."""
        try:
            found = Expressions(self._env, Around()).value(node)
        except NotUnderstood:
            return None
        if not isinstance(found, Whole) or not list(found.value.atoms()):
            return None
        return found.value

    def _note(self, found: Polynomial) -> None:
        for atom in _as_places(found).atoms():
            if isinstance(atom, Symbol):
                root, axis = atom.name.split(".")
                self.axes.add(axis)
                self.strides = self.strides or root == "gridDim"

    def _call(self, function: str) -> None:
        if function in MATHEMATICS:
            return
        if function not in self._functions:
            raise NotUnderstood(f"a call of {function}")
        for name in self._reached(function):
            for node in s.below(self._functions[name].body):
                if _tells_of_the_block(node):
                    raise NotUnderstood(f"a call of {function}")

    def _reached(self, function: str) -> Iterator[str]:
        """The function and those of the program that it calls, directly or not."""
        seen, waiting = {function}, [function]
        while waiting:
            name = waiting.pop()
            yield name
            for node in s.below(self._functions[name].body):
                called = node.function if isinstance(node, s.Call) else ""
                if called in self._functions and called not in seen:
                    seen.add(called)
                    waiting.append(called)


def _tells_of_the_block(node: object) -> bool:
    """Whether it depends on how threads are grouped, or may."""
    match node:
        case s.Name(text):
            return text in s.BUILTINS | _TALKATIVE
        case s.Call(function):
            return function in _TALKATIVE or function.startswith(("__sync", "__shfl", "atomic"))
        case s.Declare(shared=True) | s.Opaque():
            return True
    return False


def _as_places(found: Polynomial) -> Polynomial:
    """With each thread index expressed by the thread's place in the grid."""
    for axis in "xyz":
        start = symbol(f"blockIdx.{axis}") * symbol(f"blockDim.{axis}")
        thread = Symbol(f"threadIdx.{axis}")
        found = found.replace({thread: symbol(f"place.{axis}") - start})
    return found


def _is_free(found: Polynomial) -> bool:
    """Whether it is made of places and of whole numbers of threads of a dimension."""
    for monomial, _ in _as_places(found).terms:
        names = sorted(atom.name if isinstance(atom, Symbol) else "?" for atom in monomial)
        left = [n for n in names if not n.startswith("place.")]
        if not left:
            continue
        if len(left) != 2 or left[0][-2:] != left[1][-2:]:
            return False
        if (left[0].split(".")[0], left[1].split(".")[0]) != ("blockDim", "gridDim"):
            return False
    return True


def _terms(node: s.Expression, sign: int = 1) -> Iterator[tuple[int, s.Expression]]:
    if isinstance(node, s.Binary) and node.operator in "+-":
        yield from _terms(node.left, sign)
        yield from _terms(node.right, sign if node.operator == "+" else -sign)
    else:
        yield sign, node


def _refuse(array: str) -> None:
    raise NotUnderstood(f"{array} is memory")


def _bounds(kernel: s.Function) -> dict[str, Polynomial]:
    """Dimension to the bound that the kernel puts on everything it does."""
    parameters = kernel.parameters
    env: dict[str, Value] = {
        p.name: Whole(symbol(p.name), p.type)
        for p in parameters
        if not p.is_pointer and p.type in INTEGERS
    }
    reader = Expressions(env, Around())
    rest = list(kernel.body)
    try:
        while rest and isinstance(rest[0], s.Declare):
            node = rest.pop(0)
            if not isinstance(node, s.Declare) or node.value is None or node.extents:
                return {}
            env[node.name] = converted(reader.value(node.value), node.type)
        if not rest or not isinstance(rest[0], s.If) or rest[0].no:
            return {}
        condition = reader.value(rest[0].condition)
    except NotUnderstood:
        return {}
    if rest[0].yes == (s.Leave("return"),):
        return _limits(negated(condition), parameters)
    return _limits(condition, parameters) if len(rest) == 1 else {}


def _limits(condition: Value, parameters: Sequence[s.TypedParameter]) -> dict[str, Polynomial]:
    names = {p.name for p in parameters}
    found: dict[str, Polynomial] = {}
    for test in conjuncts(condition):
        if not isinstance(test, Below):
            continue
        placed = _as_places(test.value)
        for axis in "xyz":
            limit = symbol(f"place.{axis}") - placed
            known = all(isinstance(a, Symbol) and a.name in names for a in limit.atoms())
            if known and limit.sure_nonnegative and axis not in found:
                found[axis] = limit
    return found


class GeometryRecipe:
    """The same kernel, launched with another block size over the same threads."""

    name = "geometry"
    title = "launch geometry"
    family: Family = "launch_geometry"
    relieves = frozenset({
        "occupancy_block_size", "low_parallelism", "occupancy_grid", "tail_effect",
        "uncoalesced_access", "stall_long_scoreboard", "stall_lg_throttle", "dram_bandwidth",
        "l1_load_throughput", "occupancy_registers",
    })  # fmt: skip

    def propose(
        self,
        program: Program,
        kernel: Kernel,
        workloads: Sequence[Workload],
        verdict: Verdict | None,
    ) -> tuple[Rewrite, ...]:
        """One Rewrite with a tune name for each used dimension, or none."""
        try:
            freedom = prove_free(program, kernel, workloads)
            source = _source(program, kernel, workloads, freedom)
            return (written(source, self.name, self.title, _why(verdict)),)
        except NotUnderstood:
            return ()

    def seeds(self, rewrite: Rewrite) -> tuple[Mapping[str, int], ...]:
        """The first values alone; the neighbourhood is small."""
        return ({},)

    def refusal(self, rewrite: Rewrite) -> str | None:
        """Blocks that no device takes, or that fill no warp."""
        threads = 1
        for value in rewrite.values().values():
            threads *= value
        if threads > MAX_THREADS:
            return f"{threads} threads per block, over {MAX_THREADS}"
        return f"{threads} threads do not fill a warp" if threads < _WARP else None


def _why(verdict: Verdict | None) -> str:
    limit = f"The kernel is limited by {verdict.subtype}. " if verdict else ""
    return (
        f"{limit}Its threads share nothing with their block, so the block size is free: it "
        "decides how many warps an SM holds, how full the last wave is, and which threads "
        "read neighbouring addresses together."
    )


def _source(
    program: Program, kernel: Kernel, workloads: Sequence[Workload], freedom: Freedom
) -> str:
    name = free_name(f"{kernel.plain_name}_regrouped", program)
    names = {axis: f"CUDAOPS_B{axis.upper()}" for axis in freedom.axes}
    lines = ["// The same kernel over the same threads, in blocks of another size."]
    for axis, values in zip(freedom.axes, _VALUES[len(freedom.axes)].values(), strict=True):
        lines.append(f"// @tune {names[axis]} = {', '.join(map(str, values))}")
    lines += [f"// @requires {r}" for r in _requirements(freedom, names)]
    dimensions = "xyz"[: "xyz".index(max(freedom.axes)) + 1]
    grid, block = [], []
    for axis in dimensions:
        grid.append(_grid(axis, freedom, names))
        block.append(names.get(axis, "1"))
    arguments = ", ".join(p.name for p in kernel.parameters)
    callee = name + _instance(kernel, workloads)
    extents = f"grid=({', '.join(map(str, grid))}) block=({', '.join(block)})"
    lines.append(f"// @launch {callee} {extents} args=({arguments})")
    text = _LINKAGE.sub("", kernel.text)
    return "\n".join([*lines, re.sub(rf"\b{kernel.plain_name}\b", name, text), ""])


def _total(axis: str) -> LaunchExpression:
    return Variable(f"gridDim.{axis}") * Variable(f"blockDim.{axis}")


def _grid(axis: str, freedom: Freedom, names: Mapping[str, str]) -> LaunchExpression:
    if axis not in names:
        return ONE
    extent, width = freedom.extents.get(axis), Variable(names[axis])
    return _total(axis) / width if extent is None else ceil_div(extent.launch_expression(), width)


def _requirements(freedom: Freedom, names: Mapping[str, str]) -> list[LaunchExpression]:
    found = []
    for axis in freedom.axes:
        extent = freedom.extents.get(axis)
        if extent is None:
            found.append((_total(axis) % Variable(names[axis])).equals(0))
        else:
            found.append(_total(axis) >= extent.launch_expression())
    idle = [f"{root}.{a}" for root in ("gridDim", "blockDim") for a in "xyz" if a not in names]
    if idle:
        found.append(product(map(Variable, idle)).equals(1))
    if freedom.most_threads is not None:
        found.append(product(map(Variable, names.values())) <= freedom.most_threads)
    return found


def _instance(kernel: Kernel, workloads: Sequence[Workload]) -> str:
    """Template arguments of the launch, the same at every one."""
    if not kernel.template_parameters:
        return ""
    found = {w.callee.partition("<")[2].rpartition(">")[0] for w in workloads}
    if len(found) != 1 or not (arguments := found.pop()):
        raise NotUnderstood("template arguments that differ or are not written")
    return f"<{arguments}>"
