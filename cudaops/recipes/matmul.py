"""Matrix products: shared-memory and register tiling with tile sizes for the tuner."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import Template
from textwrap import indent

from cudaops.domain.hypothesis import Family
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.program.analysis.facts import ELEMENT_BYTES
from cudaops.program.analysis.polynomials import Polynomial
from cudaops.program.launch_expression import Variable, ceil_div
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.matmul_form import MatmulForm, Matrix, recognise, recognise_tiled
from cudaops.recipes.reading.kernel import Reading, read_kernel
from cudaops.recipes.reading.values import GlobalLoad, Value, parts
from cudaops.recipes.spelling import (
    ValueSpeller,
    bare,
    free_name,
    renamed_template,
    signature,
    written,
)

_STATIC_SHARED_BYTES = 48 * 1024
"""Static shared memory of a block. Source: CUDA C++ Programming Guide, technical specifications."""
_REGISTERS = 64 * 1024
"""32-bit registers of an SM, and most of one block. Source: the same table."""
_OTHER_REGISTERS = {4: 40, 8: 60}
"""By bytes of an element: addresses, sizes and loop state beside the tiles. Measured: nvcc 13.0.88,
`-O3 -arch=sm_90 -Xptxas -v`, 40 of the 72 float tiles of 64 or more sums that are not refused: 127
to 253 registers where this estimate says 144 to 248, and not one spills (2026-11-24)."""
_LEAST_THREADS = 64
"""One warp hides no latency between barriers; its tiles were also the only ones that spilled."""

_SEEDS = (
    (128, 64, 16, 16, 8, 4), (128, 128, 16, 16, 8, 2), (128, 64, 16, 8, 8, 2),
    (64, 128, 16, 8, 8, 2), (64, 64, 16, 8, 8, 2), (64, 128, 16, 8, 4, 1),
    (64, 64, 16, 8, 4, 1), (64, 64, 16, 4, 4, 1), (32, 64, 16, 4, 4, 1), (32, 32, 32, 4, 4, 1),
)  # fmt: skip
"""From large products to small ones. The first is the fastest of 41 at 1024 on an H200, the second
at 4096 (docs/recipes.md)."""
_LEAST_TILES = 64
"""A product of fewer tiles leaves most of a device idle: it begins with smaller ones. Chosen: about
half of the SMs of an H200 (132), nearly all of an A10's (72)."""
_LADDERS = {
    "CUDAOPS_BM": (32, 64, 128, 256), "CUDAOPS_BN": (32, 64, 128), "CUDAOPS_BK": (8, 16, 32),
    "CUDAOPS_TM": (4, 8, 16), "CUDAOPS_TN": (4, 8), "CUDAOPS_GROUPS": (1, 2, 4),
}  # fmt: skip
NAMES = tuple(_LADDERS)


class MatmulRecipe:
    """C = value(sum of A * B) for operands stored either way, of any size."""

    name = "matmul"
    title = "shared-memory and register tiling"
    family: Family = "tiling"
    relieves = frozenset({
        "l1_load_throughput", "l2_bandwidth", "dram_bandwidth", "uncoalesced_access",
        "shared_throughput", "stall_long_scoreboard", "stall_lg_throttle", "stall_mio_throttle",
        "stall_short_scoreboard", "stall_barrier", "low_parallelism", "issue_slots",
        "integer_pipe", "shared_bank_conflicts",
    })  # fmt: skip

    def propose(
        self,
        program: Program,
        kernel: Kernel,
        workloads: Sequence[Workload],
        verdict: Verdict | None,
    ) -> tuple[Rewrite, ...]:
        """One Rewrite with six tune names, or none."""
        try:
            reading = read_kernel(program, kernel, workloads)
            form = product_of(reading)
            outputs = max((w.grid.volume * w.block.volume for w in workloads), default=None)
            source = matmul_source(program, kernel, reading, form, outputs)
            return (written(source, self.name, self.title, _why(form, verdict)),)
        except NotUnderstood:
            return ()

    def seeds(self, rewrite: Rewrite) -> tuple[Mapping[str, int], ...]:
        """Tiles that were measured to be good, those for products of this size first."""
        own = tuple(rewrite.values()[name] for name in NAMES)
        first = _SEEDS.index(own) if own in _SEEDS else 0
        seeds = sorted(_SEEDS, key=lambda values: abs(_SEEDS.index(values) - first))
        return tuple(dict(zip(NAMES, values, strict=True)) for values in seeds)

    def refusal(self, rewrite: Rewrite) -> str | None:
        """Tiles that do not divide, do not fit or would spill."""
        values = rewrite.values()
        BM, BN, BK, TM, TN, groups = (values[name] for name in NAMES)
        element = _declared(rewrite.source, "tile_a")
        accumulator = _declared(rewrite.source, "sums")
        return tile_refusal(BM, BN, BK, TM, TN, groups, element, accumulator)


def product_of(reading: Reading) -> MatmulForm:
    """The product a kernel computes, plainly or through tiles. Raises NotUnderstood."""
    if reading.effects.shared:
        return recognise_tiled(reading)
    return recognise(reading)


def tile_refusal(
    BM: int, BN: int, BK: int, TM: int, TN: int, groups: int, element: str, accumulator: str
) -> str | None:
    """Why a tile cannot work for elements of this type; None where it may."""
    size = ELEMENT_BYTES[element]
    lanes = 16 // size
    if BM % TM or BN % TN or TM % lanes or TN % lanes or BK % (2 * lanes) or BK % (2 * groups):
        return f"a thread's {TM}x{TN} does not divide a tile of {BM}x{BN}x{BK}"
    if BM // TM % 4 or BN // TN % 8:
        return f"a warp's 4x8 threads do not divide {BM // TM}x{BN // TN} of them"
    threads = groups * (BM // TM) * (BN // TN)
    if not _LEAST_THREADS <= threads <= 512:
        return f"{threads} threads per block"
    if any(_uneven(extent, BK, threads, lanes) for extent in (BM, BN)):
        return f"{threads} threads do not divide the loads of a {BM}x{BN}x{BK} tile"
    shared = 2 * BK * (BM + BN + 2 * lanes) * size
    if shared > _STATIC_SHARED_BYTES:
        return f"{shared} bytes of shared memory, over {_STATIC_SHARED_BYTES}"
    if (groups - 1) * BM * BN // TM * ELEMENT_BYTES[accumulator] > BK * BM * size:
        return f"a tile of {BM}x{BK} has no room for the sums of {groups - 1} groups"
    words = size // 4
    tiles = TM * TN + 2 * (TM + TN) + (BM + BN) * BK // threads
    registers = words * tiles + _OTHER_REGISTERS[size]
    most = min(255, _REGISTERS // threads)
    if registers > most:
        return f"about {registers} registers per thread, over {most}"
    return None


def _uneven(extent: int, BK: int, threads: int, lanes: int) -> bool:
    """Whether threads would load different numbers of vectors, or at changing distances."""
    around = max(2 * extent, threads) % min(2 * extent, threads)
    return bool(extent * BK % (lanes * threads) or threads % (extent // lanes) or around)


def _declared(source: str, name: str) -> str:
    """Type of a local array of a rewrite of this recipe, read from its own text."""
    kinds = "|".join(sorted(_VECTORS, key=len, reverse=True))
    found = re.search(rf"\b({kinds}) (?:own_)?{name}\[", source)
    return found[1] if found else "float"


def _tunes(element: str, accumulator: str, outputs: int | None) -> str:
    """The tune directives; first, by default, stand the values of the best seed that fits the type
    and the number of outputs, where that is known."""
    fitting = [s for s in _SEEDS if tile_refusal(*s, element, accumulator) is None]
    large = (s for s in fitting if outputs is None or outputs >= _LEAST_TILES * s[0] * s[1])
    best = next(large, fitting[-1])
    lines = []
    for (name, ladder), first in zip(_LADDERS.items(), best, strict=True):
        others = [value for value in ladder if value != first]
        lines.append(f"// @tune {name} = {', '.join(map(str, [first, *others]))}\n")
    return "".join(lines)


def _why(form: MatmulForm, verdict: Verdict | None) -> str:
    limit = f"The kernel is limited by {verdict.subtype}. " if verdict else ""
    return (
        f"{limit}It computes a matrix product ({form.layout}) and reads two operands from global "
        "memory for every multiply-add. A tile in shared memory lets a block share what it read, "
        "and a tile in registers lets a thread use each element it reads several times; the next "
        "tile is fetched while this one is multiplied."
    )


_VECTORS = {
    "float": "float4", "double": "double2", "int": "int4", "unsigned": "uint4",
    "long long": "longlong2", "unsigned long long": "ulonglong2",
}  # fmt: skip
"""Built-in types of 16 bytes, the widest that one thread loads at once."""

LOCALS = (
    "tile_a", "tile_b", "rows", "cols", "depth", "lda", "ldb", "ldc", "first_row", "first_col",
    "DOWN", "ACROSS", "PLACES", "THREADS", "STEPS", "LOADS_A", "LOADS_B", "thread_row",
    "thread_col", "base_a", "base_b", "base_c", "from_a", "from_b", "row_a", "row_b", "line_a",
    "line_b", "wide", "sums", "next_a", "next_b", "stage", "load", "run", "line", "lane", "warp",
    "place", "group", "valid", "pack", "frag_a", "frag_b", "step", "row", "col", "to", "total",
    "tid", "i", "j", "g", "q", "at", "from", "fetch", "keep", "take", "parts", "given", "other",
)  # fmt: skip

_THREADS = "CUDAOPS_GROUPS * (CUDAOPS_BM / CUDAOPS_TM) * (CUDAOPS_BN / CUDAOPS_TN)"

_HEAD = Template("""\
// Matrix product ($layout) through shared memory and registers. A block computes BM x BN outputs,
// a thread TM x TN of them. Groups of warps divide the depth among them: each has sums of the whole
// tile over every GROUPS-th step, added up at the end. While BK steps are multiplied, the next ones
// are on their way from global memory into registers, and while one step is multiplied, the next
// one is read from shared memory. With two stages there, one barrier a round is enough.
$tunes$requires// @launch $name grid=($grid) block=($block) args=($args)
""")

_KERNEL = Template("""\
__global__ void __launch_bounds__($threads)
$name($signature)
{
    constexpr int DOWN = CUDAOPS_BM / CUDAOPS_TM, ACROSS = CUDAOPS_BN / CUDAOPS_TN;
    constexpr int PLACES = DOWN * ACROSS, THREADS = CUDAOPS_GROUPS * PLACES;
    constexpr int STEPS = CUDAOPS_BK / CUDAOPS_GROUPS;
    constexpr int LOADS_A = CUDAOPS_BM * CUDAOPS_BK / ($lanes * THREADS);
    constexpr int LOADS_B = CUDAOPS_BN * CUDAOPS_BK / ($lanes * THREADS);
    __shared__ __align__(16) $element tile_a[2][CUDAOPS_BK][CUDAOPS_BM$pad_a];
    __shared__ __align__(16) $element tile_b[2][CUDAOPS_BK][CUDAOPS_BN$pad_b];

    $sizes
    const int first_row = blockIdx.y * CUDAOPS_BM;
    const int first_col = blockIdx.x * CUDAOPS_BN;
    // The lanes of a warp stand 4 x 8, in pairs below each other: each half of a warp then reads 16
    // bytes a lane from either tile in one pass over the banks.
    const int tid = threadIdx.x, group = tid / PLACES, place = tid % PLACES;
    const int warp = place / 32, lane = place % 32;
    const int thread_row = (warp / (ACROSS / 8) * 4 + lane / 16 * 2 + lane % 2) * $lanes;
    const int thread_col = (warp % (ACROSS / 8) * 8 + lane / 2 % 8) * $lanes;
    const $element* base_a = $base_a;
    const $element* base_b = $base_b;
    $out* base_c = $base_c;
    const bool wide = first_row + CUDAOPS_BM <= rows && first_col + CUDAOPS_BN <= cols &&
                      (size_t)base_a % 16 == 0 && (size_t)base_b % 16 == 0 &&
                      lda % $lanes == 0 && ldb % $lanes == 0;
    $accumulator sums[CUDAOPS_TM][CUDAOPS_TN] = {};
    $product frag_a[2][CUDAOPS_TM], frag_b[2][CUDAOPS_TN];
    $vector next_a[LOADS_A], next_b[LOADS_B];

    // What this thread loads: elements (row, line + load) to begin with, the others at fixed
    // distances from them. Beyond the edges there are zeros.
$start_a
$start_b
    const auto fetch = [&](int load) {
        if (wide && load + CUDAOPS_BK <= depth) {
$fetch_wide_a
$fetch_wide_b
        } else {
$fetch_edge_a
$fetch_edge_b
        }
$advance_a
$advance_b
    };
    const auto keep = [&](int stage) {
$keep_a
$keep_b
    };
    const auto take = [&](int stage, int step) {
        const int line = step * CUDAOPS_GROUPS + group;
        #pragma unroll
        for (int i = 0; i < CUDAOPS_TM; i += $lanes) {
            const $vector pack = *($vector*)&tile_a[stage][line][i * DOWN + thread_row];
$unpack_a
        }
        #pragma unroll
        for (int j = 0; j < CUDAOPS_TN; j += $lanes) {
            const $vector pack = *($vector*)&tile_b[stage][line][j * ACROSS + thread_col];
$unpack_b
        }
    };

    fetch(0);
    keep(0);
    __syncthreads();
    take(0, 0);
    int stage = 0;
    for (int from = 0; from < depth; from += CUDAOPS_BK) {
        fetch(from + CUDAOPS_BK);
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                stage ^= 1;
                keep(stage);
                __syncthreads();
            }
            take(stage, (step + 1) % STEPS);
            #pragma unroll
            for (int i = 0; i < CUDAOPS_TM; ++i) {
                #pragma unroll
                for (int j = 0; j < CUDAOPS_TN; ++j)
                    sums[i][j] += frag_a[step % 2][i] * frag_b[step % 2][j];
            }
        }
    }

$finish
}
""")

_FINISH = """\
    // Row by row the other groups hand their sums over to the first.
    $accumulator* parts = ($accumulator*)tile_a;
    if (CUDAOPS_GROUPS > 1) __syncthreads();
    #pragma unroll
    for (int i = 0; i < CUDAOPS_TM; ++i) {
        if (CUDAOPS_GROUPS > 1) {
            $accumulator* given = parts + i % 2 * (THREADS - PLACES) * CUDAOPS_TN;
            #pragma unroll
            for (int j = 0; j < CUDAOPS_TN; ++j)
                if (group > 0) given[j * (THREADS - PLACES) + tid - PLACES] = sums[i][j];
            __syncthreads();
            if (group > 0) continue;
            #pragma unroll
            for (int other = 0; other < THREADS - PLACES; other += PLACES) {
                #pragma unroll
                for (int j = 0; j < CUDAOPS_TN; ++j)
                    sums[i][j] += given[j * (THREADS - PLACES) + other + place];
            }
        }
        const int row = first_row + (i - i % $lanes) * DOWN + thread_row + i % $lanes;
        if (row >= rows) continue;
        #pragma unroll
        for (int j = 0; j < CUDAOPS_TN; j += $lanes) {
            const int g = first_col + j * ACROSS + thread_col;
            $out* to = base_c + (size_t)row * ldc + g;
            $out run[$lanes];
            #pragma unroll
            for (int q = 0; q < $lanes; ++q) {
                const int col = g + q;
                const $accumulator total = sums[i][j + q];
                if (col < cols) run[q] = $value;
            }
@store
        }
    }"""

_STORE_EACH = """\
            #pragma unroll
            for (int q = 0; q < $lanes; ++q) if (g + q < cols) to[q] = run[q];"""

_STORE_WIDE = """\
            if ((size_t)to % 16 == 0 && g + $lanes <= cols) {
                $vector pack;
@pack
                *($vector*)to = pack;
                continue;
            }
"""

_LOADS = """\
#pragma unroll
for (int i = 0; i < LOADS_{U}; ++i) {{
{where}
{body}
}}"""


def matmul_source(
    program: Program, kernel: Kernel, reading: Reading, form: MatmulForm, outputs: int | None = None
) -> str:
    """The rewrite's whole text, directives included. `outputs`: of the largest launch."""
    writer = _Writer(program, kernel, reading, form, outputs)
    return writer.head() + writer.kernel()


class _Writer:
    def __init__(
        self, program: Program, kernel: Kernel, reading: Reading, form: MatmulForm,
        outputs: int | None,
    ) -> None:  # fmt: skip
        self._program, self._kernel, self._reading, self._form = program, kernel, reading, form
        self._outputs = outputs
        self._name = free_name(f"{kernel.plain_name}_tiled", program)
        self._lanes = 16 // ELEMENT_BYTES[form.element]
        self._extra = {
            local: axis
            for local, axis in (("rows", form.rows), ("cols", form.columns))
            if "Dim." in axis.size.text()
        }

    def head(self) -> str:
        """Comment and directives."""
        form = self._form
        grid = [
            ceil_div(form.columns.size.launch_expression(), Variable("CUDAOPS_BN")),
            ceil_div(form.rows.size.launch_expression(), Variable("CUDAOPS_BM")),
            *([form.batch.size.launch_expression()] if form.batch else []),
        ]
        args = [p.name for p in self._reading.parameters]
        args += [str(axis.size.launch_expression()) for axis in self._extra.values()]
        return _HEAD.substitute(
            layout=form.layout,
            tunes=_tunes(form.element, form.accumulator, self._outputs),
            requires="".join(f"// @requires {r}\n" for r in form.requirements),
            name=self._name,
            block=_THREADS,
            grid=", ".join(map(str, grid)),
            args=", ".join(args),
        )

    def kernel(self) -> str:
        """The kernel's definition."""
        form, lanes = self._form, self._lanes
        fields = {
            "name": self._name,
            "signature": self._signature(),
            "threads": _THREADS,
            "lanes": str(lanes),
            "element": form.element,
            "product": form.product,
            "accumulator": form.accumulator,
            "out": form.out_element,
            "vector": _VECTORS[form.element],
            "pad_a": f" + {lanes}" if form.left.k_adjacent else "",
            "pad_b": f" + {lanes}" if form.right.k_adjacent else "",
            "sizes": self._sizes(),
            "base_a": self._base(form.left),
            "base_b": self._base(form.right),
            "base_c": self._base(form.out),
        }
        body = _KERNEL.template
        for side, matrix in (("a", form.left), ("b", form.right)):
            for part, text in self._side(side, matrix).items():
                body = body.replace(f"${part}_{side}", text)
        body = body.replace("$finish", self._finish())
        body = renamed_template(body, LOCALS, self._program, self._kernel)
        return Template(body).substitute(fields, value=self._value())

    def _signature(self) -> str:
        out = self._form.out.array
        read = {p.array for p in parts(self._form.value) if isinstance(p, GlobalLoad)} - {out}
        const = {p.name for p in self._kernel.parameters if p.is_const}
        written = signature(self._reading.parameters, const.__contains__, read)
        return written + "".join(f", int {self._own(name)}" for name in self._extra)

    def _own(self, local: str) -> str:
        """A local's name as it stands in this kernel."""
        return renamed_template(local, LOCALS, self._program, self._kernel)

    def _sizes(self) -> str:
        form = self._form
        sizes: list[tuple[str, Polynomial]] = [("depth", form.depth)]
        for local, axis in (("rows", form.rows), ("cols", form.columns)):
            if local not in self._extra:
                sizes.append((local, axis.size))
        plain = ", ".join(f"{self._own(n)} = {p.text()}" for n, p in sizes)
        strides = (("lda", form.left), ("ldb", form.right), ("ldc", form.out))
        far = ", ".join(f"{self._own(n)} = {m.stride.text()}" for n, m in strides)
        return f"const int {plain};\n    const size_t {far};"

    def _base(self, matrix: Matrix) -> str:
        offset = self._form.space.place(matrix.offset)
        if not offset.terms:
            return matrix.array
        return f"{matrix.array} + ({offset.text(self._batch_name)})"

    def _batch_name(self, name: str) -> str:
        return "(size_t)blockIdx.z" if name == "block.z" else name

    def _side(self, side: str, matrix: Matrix) -> dict[str, str]:
        """The parts of the kernel that differ with an operand's layout."""
        extent = f"CUDAOPS_B{'M' if side == 'a' else 'N'}"
        first, limit = ("first_row", "rows") if side == "a" else ("first_col", "cols")
        names = {"s": side, "first": first, "limit": limit, "extent": extent}
        pieces = _ALONG_K if matrix.k_adjacent else _ACROSS
        where = indent(self._piece(pieces["where"], names), "    ")
        built = {}
        for part, spaces in (("fetch_wide", 12), ("fetch_edge", 12), ("keep", 8)):
            body = indent(self._piece(pieces[part], names), "    ")
            loads = _LOADS.format(U=side.upper(), where=where, body=body)
            built[part] = indent(loads, " " * spaces)
        for part, spaces in (("start", 4), ("advance", 8)):
            built[part] = indent(self._piece(pieces[part], names), " " * spaces)
        cast = "" if self._form.product == self._form.element else "($product)"
        x = "i" if side == "a" else "j"
        unpack = f"frag_{side}[step % 2][{x} + {{q}}] = {cast}pack.{{c}};"
        built["unpack"] = indent(self._piece(unpack, names), " " * 12)
        return built

    def _piece(self, text: str, names: dict[str, str]) -> str:
        lines = []
        for line in text.splitlines():
            every = range(self._lanes) if "{q}" in line or "{c}" in line else range(1)
            lines += [line.format(**names, n="$lanes", q=q, c="xyzw"[q]) for q in every]
        return "\n".join(lines)

    def _finish(self) -> str:
        packs = "\n".join(
            f"                pack.{'xyzw'[q]} = run[{q}];" for q in range(self._lanes)
        )
        same = self._form.out_element == self._form.element
        store = (_STORE_WIDE.replace("@pack", packs) if same else "") + _STORE_EACH
        return _FINISH.replace("@store", store)

    def _value(self) -> str:
        form = self._form
        names = {
            form.rows.symbol.name: f"(size_t){self._own('row')}",
            form.columns.symbol.name: self._own("col"),
            "block.z": "(size_t)blockIdx.z",
        }
        known: dict[Value, str] = {form.total: self._own("total")}
        for part in parts(form.value):
            if isinstance(part, GlobalLoad) and part.array == form.out.array:
                known[part] = f"{self._own('to')}[{self._own('q')}]"
        text = bare(ValueSpeller(form.space, names, known).text(form.value))
        if form.value.type != form.out_element:
            return f"({form.out_element})({text})"
        return text


_ALONG_K = {
    "start": """\
const int row_{s} = tid / 2 % {extent};
const int line_{s} = tid % 2 * {n} + tid / (2 * {extent}) * (2 * {n});
const $element* from_{s} = base_{s} + ({first} + row_{s}) * ld{s} + line_{s};""",
    "advance": "from_{s} += CUDAOPS_BK;",
    "where": """\
const int row = i * THREADS / 2 % {extent};
const int line = i * THREADS / (2 * {extent}) * (2 * {n});""",
    "fetch_wide": "next_{s}[i] = *(const $vector*)&from_{s}[row * ld{s} + line];",
    "fetch_edge": """\
const $element* at = from_{s} + row * ld{s} + line;
const int valid = {first} + row_{s} + row < {limit} ? depth - load - line_{s} - line : 0;
next_{s}[i].{c} = {q} < valid ? at[{q}] : 0;""",
    "keep": "tile_{s}[stage][line_{s} + line + {q}][row_{s} + row] = next_{s}[i].{c};",
}
_ACROSS = {
    "start": """\
const int row_{s} = tid % ({extent} / {n}) * {n};
const int line_{s} = tid / ({extent} / {n});
const $element* from_{s} = base_{s} + line_{s} * ld{s} + {first} + row_{s};""",
    "advance": "from_{s} += CUDAOPS_BK * ld{s};",
    "where": "const int line = i * THREADS / ({extent} / {n});",
    "fetch_wide": "next_{s}[i] = *(const $vector*)&from_{s}[line * ld{s}];",
    "fetch_edge": """\
const $element* at = from_{s} + line * ld{s};
const int valid = load + line_{s} + line < depth ? {limit} - {first} - row_{s} : 0;
next_{s}[i].{c} = {q} < valid ? at[{q}] : 0;""",
    "keep": "*($vector*)&tile_{s}[stage][line_{s} + line][row_{s}] = next_{s}[i];",
}
