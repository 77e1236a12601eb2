"""Memory-layout transposes: through a padded tile, so that reads and writes are both coalesced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template

from cudaops.domain.hypothesis import Family
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.program.analysis.polynomials import Polynomial, number
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
from cudaops.recipes.reading.values import GlobalLoad, Reduced, Value, parts
from cudaops.recipes.spelling import (
    ValueSpeller,
    bare,
    free_name,
    renamed_template,
    signature,
    written,
)

SIZES = {
    "bool": 1, "char": 1, "signed char": 1, "unsigned char": 1, "short": 2, "unsigned short": 2,
    "half": 2, "__nv_bfloat16": 2, "int": 4, "unsigned": 4, "float": 4, "long long": 8,
    "unsigned long long": 8, "double": 8, "float2": 8, "int2": 8, "uint2": 8, "float4": 16,
    "int4": 16, "uint4": 16, "double2": 16,
}  # fmt: skip
"""sizeof on the device. Source: CUDA C++ Programming Guide, built-in vector types; LP64."""

LOCALS = (
    "tile", "across", "down", "first_across", "first_down", "r", "element",
    "width", "height",
)  # fmt: skip
_STATIC_SHARED_BYTES = 48 * 1024

_SOURCE = Template("""\
// Transpose through a padded tile in shared memory: neighbouring threads read neighbours of the
// input and write neighbours of the output; the padding spreads a column of it over the banks.
// @tune CUDAOPS_TILE = 32, 64, 16
// @tune CUDAOPS_ROWS = 8, 16, 32, 4
$requires// @launch $name grid=($grid) block=(CUDAOPS_TILE, CUDAOPS_ROWS) args=($args)
__global__ void __launch_bounds__(CUDAOPS_TILE * CUDAOPS_ROWS)
$name($signature)
{
    __shared__ $element tile[CUDAOPS_TILE][CUDAOPS_TILE + 1];
$body}
""")

_BODY = """\
    const int width = $width, height = $height;
    const int first_across = blockIdx.x * CUDAOPS_TILE;
    const int first_down = blockIdx.y * CUDAOPS_TILE;
    #pragma unroll
    for (int r = threadIdx.y; r < CUDAOPS_TILE; r += CUDAOPS_ROWS) {
        const size_t across = first_across + threadIdx.x, down = first_down + r;
        if (across < width && down < height) tile[r][threadIdx.x] = $in[$from];
    }
    __syncthreads();
    #pragma unroll
    for (int r = threadIdx.y; r < CUDAOPS_TILE; r += CUDAOPS_ROWS) {
        const size_t across = first_across + r, down = first_down + threadIdx.x;
        if (across < width && down < height) {
            const $element element = tile[threadIdx.x][r];
            $out[$to] = $value;
        }
    }
"""


@dataclass(frozen=True)
class TransposeForm:
    """out[down + across * ...] = value(in[across + down * ...])."""

    across: Axis
    """Neighbours in it are adjacent in the input."""
    down: Axis
    """Neighbours in it are adjacent in the output."""
    batch: Axis | None
    source: GlobalLoad
    target: Polynomial
    out: str
    out_element: str
    value: Value
    space: Space
    requirements: tuple[LaunchExpression, ...]


def recognise(reading: Reading) -> TransposeForm:
    """The transpose that the kernel computes. Raises NotUnderstood."""
    store = only_store(reading)
    loads = {p for p in parts(store.value) if isinstance(p, GlobalLoad)}
    if len(loads) != 1 or any(isinstance(p, Reduced) for p in parts(store.value)):
        raise NotUnderstood("not one element read for one written")
    source = loads.pop()
    if source.array == store.place.array or source.type not in SIZES:
        raise NotUnderstood("a transpose in place or of an unknown type")
    space = find_space([store.place.offset, source.index], store.guards)
    batch = next((a for a in space.axes if a.symbol.name == "block.z"), None)
    axes = [a for a in space.axes if a != batch]
    read, written = space.place(source.index), space.place(store.place.offset)
    across, down = _adjacent(read, axes), _adjacent(written, axes)
    if len(axes) != 2 or across == down:
        raise NotUnderstood("reads and writes in the same order")
    _check(reading, space, (read, written), store.value)
    found = [r for axis in space.axes for r in axis.requirements] + reading.requirements
    found += one_writer(written, [down, across, *([batch] if batch else [])])
    requirements = tuple(dict.fromkeys(found))
    return TransposeForm(
        across, down, batch, source, written, store.place.array, store.place.type, store.value,
        space, requirements,
    )  # fmt: skip


def _adjacent(index: Polynomial, axes: Sequence[Axis]) -> Axis:
    """The coordinate whose neighbours are adjacent in memory."""
    found = []
    for axis in axes:
        linear = index.linear_in(axis.symbol)
        if linear is None or not linear[0].terms:
            raise NotUnderstood("an index that is not row * stride + column")
        if linear[0] == number(1):
            found.append(axis)
    if len(found) != 1:
        raise NotUnderstood("an index without one adjacent direction")
    return found[0]


def _check(reading: Reading, space: Space, indices: Sequence[Polynomial], value: Value) -> None:
    inputs = reading.inputs
    geometry = {f"{root}.{axis}" for root in ("gridDim", "blockDim") for axis in "xyz"}
    symbols = {axis.symbol.name for axis in space.axes}
    require_known(value, space, inputs | symbols)
    for index in indices:
        require_names(index, inputs | symbols)
    for axis in space.axes:
        require_names(axis.size, inputs | geometry)
        if axis.guard is not None:
            require_names(axis.guard, inputs)


class TransposeRecipe:
    """B[x * ld + y] = f(A[y * ld2 + x]) for elements of 1 to 16 bytes."""

    name = "transpose"
    title = "padded shared-memory tile"
    family: Family = "coalescing"
    relieves = frozenset({
        "uncoalesced_access", "l1_load_throughput", "l2_bandwidth", "dram_bandwidth",
        "stall_lg_throttle", "stall_long_scoreboard",
    })  # fmt: skip

    def propose(
        self,
        program: Program,
        kernel: Kernel,
        workloads: Sequence[Workload],
        verdict: Verdict | None,
    ) -> tuple[Rewrite, ...]:
        """One Rewrite with two tune names, or none."""
        try:
            reading = read_kernel(program, kernel, workloads)
            form = recognise(reading)
            source = _source(program, kernel, reading, form)
            return (written(source, self.name, self.title, _why(verdict)),)
        except NotUnderstood:
            return ()

    def seeds(self, rewrite: Rewrite) -> tuple[Mapping[str, int], ...]:
        """The textbook shape first."""
        shapes = ((32, 8), (32, 16), (64, 8), (16, 16))
        return tuple({"CUDAOPS_TILE": t, "CUDAOPS_ROWS": r} for t, r in shapes)

    def refusal(self, rewrite: Rewrite) -> str | None:
        """Tiles that do not divide or do not fit."""
        values = rewrite.values()
        tile, rows = values["CUDAOPS_TILE"], values["CUDAOPS_ROWS"]
        if tile % rows or tile * rows > 1024:
            return f"{rows} rows of threads do not divide a tile of {tile}"
        declared = rewrite.source.split("__shared__ ", 1)[1].split(" tile[", 1)[0]
        shared = tile * (tile + 1) * SIZES[declared.replace("own_", "")]
        if shared > _STATIC_SHARED_BYTES:
            return f"{shared} bytes of shared memory, over {_STATIC_SHARED_BYTES}"
        return None


def _why(verdict: Verdict | None) -> str:
    limit = f"The kernel is limited by {verdict.subtype}. " if verdict else ""
    return (
        f"{limit}It reads along one direction of memory and writes along the other, so one of "
        "the two touches a sector an element. A padded tile turns the block's elements round "
        "in shared memory and both become consecutive."
    )


def _source(program: Program, kernel: Kernel, reading: Reading, form: TransposeForm) -> str:
    own = {name: renamed_template(name, LOCALS, program, kernel) for name in LOCALS}
    extra = {
        local: axis
        for local, axis in (("width", form.across), ("height", form.down))
        if "Dim." in axis.size.text()
    }
    names = {
        form.across.symbol.name: own["across"],
        form.down.symbol.name: own["down"],
        "block.z": "(size_t)blockIdx.z",
    }
    speller = ValueSpeller(form.space, names, {form.source: own["element"]})
    value = bare(speller.text(form.value))
    body = renamed_template(_BODY, LOCALS, program, kernel)
    for local in extra:
        body = body.replace(f"{own[local]} = ${local}", f"{own[local]} = {own[local]}_")
    fields = {
        "width": form.across.size.text(),
        "height": form.down.size.text(),
        "in": form.source.array,
        "out": form.out,
        "element": form.source.type,
        "from": form.space.place(form.source.index).text(speller.name),
        "to": form.target.text(speller.name),
        "value": value,
    }
    sizes = [axis.size.launch_expression() for axis in (form.across, form.down)]
    grid = [ceil_div(size, Variable("CUDAOPS_TILE")) for size in sizes]
    grid += [form.batch.size.launch_expression()] if form.batch else []
    const = {p.name for p in kernel.parameters if p.is_const}
    declared = signature(reading.parameters, const.__contains__, {form.source.array})
    return _SOURCE.substitute(
        requires="".join(f"// @requires {r}\n" for r in form.requirements),
        name=free_name(f"{kernel.plain_name}_tiled", program),
        grid=", ".join(map(str, grid)),
        args=", ".join(
            [p.name for p in reading.parameters]
            + [str(a.size.launch_expression()) for a in extra.values()]
        ),
        signature=declared + "".join(f", int {own[local]}_" for local in extra),
        element=form.source.type,
        body=Template(body).substitute(fields),
    ).replace(" tile[CUDAOPS_TILE]", f" {own['tile']}[CUDAOPS_TILE]")
