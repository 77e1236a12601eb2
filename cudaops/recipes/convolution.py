"""Convolutions with three taps along a row: Winograd's schemes, with fewer products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template

from cudaops.domain.hypothesis import Family
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import ScalarArgument, Workload
from cudaops.program.analysis.polynomials import Polynomial, Symbol, number, of
from cudaops.program.launch_expression import LaunchExpression, Variable, ceil_div
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.coordinates import (
    Axis,
    Space,
    find_space,
    one_writer,
    require_known,
    require_names,
)
from cudaops.recipes.matmul_form import only_store
from cudaops.recipes.reading.kernel import Reading, read_kernel
from cudaops.recipes.reading.symbolic import SymbolicStore
from cudaops.recipes.reading.values import (
    FLOATS,
    Apply,
    GlobalLoad,
    Reduced,
    Value,
    is_zero,
    parts,
)
from cudaops.recipes.schemes import SCHEMES, Scheme
from cudaops.recipes.spelling import (
    ValueSpeller,
    bare,
    free_name,
    renamed_template,
    signature,
    written,
)

_GRID_MOST = 65535
"""Blocks of a grid in y and z. Source: CUDA C++ Programming Guide, technical specifications."""
_COUNTERS = ("c0", "c1", "c2", "c3")
LOCALS = ("first", "whole", "width", "d", "g", "p", "total", "row", "plane", *_COUNTERS)

_SOURCE = Template("""\
// Convolution by $scheme: a thread computes $outputs neighbours of a row with $products products an
// iteration, where the definition takes $definition. Sums of the data are multiplied by sums of the
// taps, and the outputs are sums of the products.
// @tune CUDAOPS_BLOCK = 128, 256, 64, 32
$requires// @launch $name grid=($grid) block=(CUDAOPS_BLOCK) args=($args)
__global__ void __launch_bounds__(CUDAOPS_BLOCK)
$name($signature)
{
$body}
""")

_BODY = """\
    const int width = $width;
    const int first = (blockIdx.x * CUDAOPS_BLOCK + threadIdx.x) * $outputs;
$others    if (first >= width) return;
    const bool whole = first + $outputs <= width;
    $element p[$products] = {};
$loops        const $element d[] = {$data};
        const $element g[] = {$taps};
$multiply$ends$store"""


@dataclass(frozen=True)
class ConvolutionForm:
    """out[.., x] = value(sum over `loops` and s < 3 of data[.., x + s] * taps[.., s])."""

    row: Axis
    """The direction of the taps; outputs that are neighbours in it are adjacent in memory."""
    others: tuple[Axis, ...]
    """The remaining coordinates, at most two."""
    loops: tuple[Reduced, ...]
    """Sums around the one over the taps, outermost first."""
    along: Symbol
    """Counts the taps."""
    data: GlobalLoad
    taps: GlobalLoad
    store: SymbolicStore
    total: Reduced
    space: Space
    requirements: tuple[LaunchExpression, ...]


def recognise(reading: Reading, workloads: Sequence[Workload]) -> ConvolutionForm:
    """The convolution that the kernel computes. Raises NotUnderstood."""
    store = only_store(reading)
    total = next((p for p in parts(store.value) if isinstance(p, Reduced)), None)
    if total is None:
        raise NotUnderstood("no sum")
    *loops, inner = _nested(total)
    needed = _three(inner.count, workloads)
    loads = _factors(inner.term)
    counts = [loop.count for loop in loops]
    read = [p for p in parts(store.value) if isinstance(p, GlobalLoad)]
    space = find_space([store.place.offset, *(p.index for p in read), *counts], store.guards)
    index = space.place(store.place.offset)
    row = _adjacent(index, space.axes)
    data, taps = sorted(loads, key=lambda load: not space.place(load.index).has(row.symbol))
    others = tuple(axis for axis in space.axes if axis != row)
    found = [r for axis in space.axes for r in axis.requirements] + reading.requirements
    found += one_writer(index, [row, *_outwards(index, others)])
    found += [axis.size.launch_expression() <= _GRID_MOST for axis in others]
    form = ConvolutionForm(
        row, others, tuple(loops), inner.variable, data, taps, store, total, space,
        tuple(dict.fromkeys([*needed, *found])),
    )  # fmt: skip
    _check(form, reading, read)
    return form


def _nested(total: Reduced) -> list[Reduced]:
    """The sum and those in it, each of which starts at zero, in one floating type."""
    found = [total]
    while isinstance(found[-1].term, Reduced):
        found.append(found[-1].term)
    if any(not is_zero(one.first) or one.type != total.type for one in found):
        raise NotUnderstood("a sum that does not start at zero")
    if total.type not in FLOATS:
        raise NotUnderstood("whole numbers, which a last division does not keep modulo 2**32")
    return found


def _three(count: Polynomial, workloads: Sequence[Workload]) -> list[LaunchExpression]:
    """What the launch must fulfil for a count to be three. Raises NotUnderstood if it is not."""
    if count == number(3):
        return []
    name = count.text()
    values = {
        a.value for w in workloads for a in w.arguments
        if isinstance(a, ScalarArgument) and a.name == name
    }  # fmt: skip
    if values != {3}:
        raise NotUnderstood("another number of taps than three")
    return [count.launch_expression().equals(3)]


def _factors(term: Value) -> tuple[GlobalLoad, GlobalLoad]:
    if not isinstance(term, Apply) or term.operator != "*" or len(term.operands) != 2:
        raise NotUnderstood("another kind of sum than products")
    first, second = term.operands
    if not isinstance(first, GlobalLoad) or not isinstance(second, GlobalLoad):
        raise NotUnderstood("a factor that is not read from memory")
    if not first.type == second.type == term.type:
        raise NotUnderstood("factors of different types")
    return first, second


def _adjacent(index: Polynomial, axes: Sequence[Axis]) -> Axis:
    """The coordinate whose neighbours are adjacent in the output."""
    for axis in axes:
        linear = index.linear_in(axis.symbol)
        if linear is not None and linear[0] == number(1):
            return axis
    raise NotUnderstood("an output without one adjacent direction")


def _outwards(index: Polynomial, axes: Sequence[Axis]) -> list[Axis]:
    """The other coordinates, those with the smaller step first: with fewer factors in it."""

    def factors(axis: Axis) -> int:
        linear = index.linear_in(axis.symbol)
        return max((len(m) for m, _ in linear[0].terms), default=0) if linear else 0

    return sorted(axes, key=factors)


def _check(form: ConvolutionForm, reading: Reading, read: Sequence[GlobalLoad]) -> None:
    one, row, along = number(1), form.row.symbol, form.along
    data, taps = (form.space.place(load.index) for load in (form.data, form.taps))
    steps = data.linear_in(row), data.linear_in(along)
    if any(step is None or step[0] != one for step in steps):
        raise NotUnderstood("data that is not read at x + s")
    if taps.has(row) or not (by := taps.linear_in(along)) or not by[0].terms:
        raise NotUnderstood("taps that depend on the row's coordinate")
    if len(form.others) > 2 or len(form.loops) > len(_COUNTERS):
        raise NotUnderstood("more than three coordinates or five sums")
    if form.store.place.type != form.total.type or form.data.type != form.total.type:
        raise NotUnderstood("elements and sums of different types")
    if sum(isinstance(p, Reduced) for p in parts(form.store.value)) != len(form.loops) + 1:
        raise NotUnderstood("more than one sum")
    if any(reading.share(form.store.place.array, load.array) for load in read):
        raise NotUnderstood("an output that is also read")
    _check_names(form, reading)


def _check_names(form: ConvolutionForm, reading: Reading) -> None:
    """Raise NotUnderstood where anything depends on more than coordinates, loops and numbers."""
    inputs = reading.inputs
    geometry = {f"{root}.{axis}" for root in ("gridDim", "blockDim") for axis in "xyz"}
    outputs = inputs | {axis.symbol.name for axis in form.space.axes}
    inside = {form.along.name} | {loop.variable.name for loop in form.loops}
    for loop in form.loops:
        require_names(loop.count, inputs)
    for load in (form.data, form.taps):
        require_names(form.space.place(load.index), outputs | inside)
    require_names(form.space.place(form.store.place.offset), outputs)
    for axis in form.space.axes:
        require_names(axis.size, inputs | (geometry if axis != form.row else frozenset()))
        if axis.guard is not None:
            require_names(axis.guard, inputs)
    require_known(form.store.value, form.space, outputs)


class ConvolutionRecipe:
    """Sums of products with three taps along a row, in floats or doubles."""

    name = "convolution"
    title = "Winograd's minimal filtering"
    family: Family = "algorithm"
    relieves = frozenset({
        "fma_pipe", "fp64_pipe", "issue_slots", "l1_load_throughput", "stall_lg_throttle",
        "stall_long_scoreboard",
    })  # fmt: skip
    reassociates = True

    def propose(
        self,
        program: Program,
        kernel: Kernel,
        workloads: Sequence[Workload],
        verdict: Verdict | None,
    ) -> tuple[Rewrite, ...]:
        """One Rewrite a scheme with one tune name, or none."""
        try:
            reading = read_kernel(program, kernel, workloads)
            form = recognise(reading, workloads)
            return tuple(
                written(
                    _source(program, kernel, reading, form, scheme),
                    self.name,
                    f"{self.title}, {scheme.name}",
                    _why(scheme, verdict),
                )
                for scheme in SCHEMES
            )
        except NotUnderstood:
            return ()

    def seeds(self, rewrite: Rewrite) -> tuple[Mapping[str, int], ...]:
        """Small blocks too: a row has fewer threads than it has outputs."""
        return tuple({"CUDAOPS_BLOCK": threads} for threads in (128, 64, 32))

    def refusal(self, rewrite: Rewrite) -> str | None:
        """None: every size of block works."""
        return None


def _why(scheme: Scheme, verdict: Verdict | None) -> str:
    limit = f"The kernel is limited by {verdict.subtype}. " if verdict else ""
    outputs, taps = len(scheme.out), len(scheme.taps[0])
    return (
        f"{limit}It convolves rows with {taps} taps. {scheme.name} computes {outputs} outputs with "
        f"{scheme.products} products instead of {outputs * taps}, and a thread reads "
        f"{outputs + taps - 1} elements for them instead of {outputs * taps}. The identity is "
        f"exact; the bound of the rounding error grows by {float(scheme.growth):.3g}."
    )


def _sum(coefficients: Sequence[int], name: str) -> str:
    """`a[0] - 5 * a[2]` of (1, 0, -5)."""
    terms = [
        ("- " if c < 0 else "+ ") + (f"{abs(c)} * " if abs(c) != 1 else "") + f"{name}[{at}]"
        for at, c in enumerate(coefficients)
        if c
    ]
    text = " ".join(terms)
    return text[2:] if text.startswith("+ ") else f"-{text[2:]}"


def _source(
    program: Program, kernel: Kernel, reading: Reading, form: ConvolutionForm, scheme: Scheme
) -> str:
    own = {name: renamed_template(name, LOCALS, program, kernel) for name in LOCALS}
    coordinates = dict(zip(form.others, (own["row"], own["plane"]), strict=False))
    body = renamed_template(_BODY, LOCALS, program, kernel)
    declared = [a.size.launch_expression() for a in form.others]
    blocks = Variable("CUDAOPS_BLOCK") * len(scheme.out)
    grid = [ceil_div(form.row.size.launch_expression(), blocks), *declared]
    const = {p.name for p in kernel.parameters if p.is_const}
    read = {form.data.array, form.taps.array}
    outputs, taps = len(scheme.out), len(scheme.taps[0])
    return _SOURCE.substitute(
        scheme=scheme.name,
        outputs=outputs,
        products=scheme.products,
        definition=outputs * taps,
        requires="".join(f"// @requires {r}\n" for r in form.requirements),
        name=free_name(f"{kernel.plain_name}_winograd", program),
        grid=", ".join(map(str, grid)),
        args=", ".join(p.name for p in reading.parameters),
        signature=signature(reading.parameters, const.__contains__, read),
        body=Template(body).substitute(
            _fields(form, scheme, own, {a.symbol.name: n for a, n in coordinates.items()})
        ),
    )


def _fields(
    form: ConvolutionForm, scheme: Scheme, own: Mapping[str, str], coordinates: Mapping[str, str]
) -> dict[str, str]:
    """What the body's template asks for."""
    row, outputs = form.row.symbol, len(scheme.out)
    counters = [own[name] for name in _COUNTERS[: len(form.loops)]]
    counted = zip((loop.variable.name for loop in form.loops), counters, strict=True)
    names = {**coordinates, **dict(counted), row.name: own["first"]}
    speller = ValueSpeller(form.space, names, {form.total: own["total"]})

    def at(index: Polynomial, symbol: Symbol, place: Polynomial) -> str:
        return form.space.place(index).replace({symbol: place}).text(speller.name)

    start = form.data.index.replace({form.along: number(0)})
    reads = [
        f"{form.data.array}[{at(start, row, of(row) + number(j))}]"
        for j in range(len(scheme.data[0]))
    ]
    inside = len(scheme.taps[0]) - 1
    edge = [
        text if j <= inside else f"{own['whole']} || {own['first']} + {j - inside} < "
        f"{own['width']} ? {text} : 0"
        for j, text in enumerate(reads)
    ]  # fmt: skip
    taps = [
        f"{form.taps.array}[{at(form.taps.index, form.along, number(k))}]"
        for k in range(len(scheme.taps[0]))
    ]
    lines = [
        f"        {own['p']}[{p}] += ({_sum(d, own['d'])}) * ({_sum(t, own['g'])});\n"
        for p, (d, t) in enumerate(zip(scheme.data, scheme.taps, strict=True))
    ]
    opened = [
        f"    for (int {c} = 0; {c} < {form.space.place(x.count).text(speller.name)}; ++{c})\n"
        for c, x in zip(counters, form.loops, strict=True)
    ]
    return {
        "width": form.row.size.text(),
        "outputs": str(outputs),
        "products": str(scheme.products),
        "element": form.total.type,
        "others": "".join(
            f"    const int {name} = blockIdx.{axis};\n"
            for name, axis in zip(coordinates.values(), "yz", strict=False)
        ),
        "loops": "".join(opened) + "    {\n",
        "data": ", ".join(edge),
        "taps": ", ".join(taps),
        "multiply": "".join(lines),
        "ends": "    }\n",
        "store": "".join(_stored(form, scheme, own, names, i) for i in range(outputs)),
    }


def _stored(
    form: ConvolutionForm, scheme: Scheme, own: Mapping[str, str], names: Mapping[str, str], i: int
) -> str:
    """One output's last sum, and its write."""
    moved = (form.row.symbol, of(form.row.symbol) + number(i))
    space = Space(form.space.axes, (*form.space.replaced, moved))
    speller = ValueSpeller(space, names, {form.total: own["total"]})
    target = space.place(form.store.place.offset).text(speller.name)
    return (
        f"    if ({own['whole']} || {own['first']} + {i} < {own['width']}) {{\n"
        f"        const {form.total.type} {own['total']} = ({_sum(scheme.out[i], own['p'])}) / "
        f"{scheme.denominator};\n"
        f"        {form.store.place.array}[{target}] = {bare(speller.text(form.store.value))};\n"
        "    }\n"
    )
