"""A library's call that does a kernel's job, as a program that makes it on captured contents.

The program holds the result against what the author's kernel left, then times the call by CUDA
events, in the state of the L2 in which the kernel is timed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import Template
from typing import NamedTuple

from cudaops.domain.program import Kernel, Program
from cudaops.domain.workload import ELEMENT_BYTES, PointerArgument, Workload
from cudaops.program.analysis.polynomials import Atom, Polynomial, Symbol, number
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.libraries import LETTERS, element_sum, sums_of_rows
from cudaops.recipes.matmul import product_of
from cudaops.recipes.matmul_form import MatmulForm, Matrix
from cudaops.recipes.reading.kernel import Reading, read_kernel
from cudaops.recipes.reading.values import Apply, GlobalLoad, Literal, Scalar, Value

SAMPLES = 40
"""As many as a kernel's measurement aims at."""
WARMING_US = 50_000
"""Before the first sample, by which clocks have risen. Chosen."""
LEAST_SAMPLE_US = 200
"""Of a warm sample: launches in a row. Chosen: what events resolve (0.5 us) is then nothing."""
SAYS = re.compile(r"^library: us=([\d.e+-]+) difference=([\d.e+-]+)$", re.MULTILINE)
"""What the program prints: microseconds a call, median; relative L2 error of the result."""
TOLERANCE = {"f32": 1e-4, "f64": 1e-10}
"""Relative L2 error that still is agreement; of other types the results are equal.
Chosen: sums in another order, of up to some millions of terms."""


class LibraryCall(NamedTuple):
    """One way to call it."""

    header: str
    setup: str
    """C++, before anything is timed."""
    call: str
    """C++, with `b0`, `b1`, ... for the buffers' addresses."""
    buffers: tuple[int, ...]
    """Allocations, the result's last."""
    element: str


def library_call(
    program: Program, kernel: Kernel, workloads: Sequence[Workload], workload: Workload
) -> LibraryCall:
    """The call that does what the kernel did in this workload. Raises NotUnderstood where none is
    written: of transposes and histograms, or where a size is not known."""
    if (total := element_sum(program, kernel, workloads)) is not None:
        return _sum(workload, *total)
    reading = read_kernel(program, kernel, workloads)
    values = _values(workload)
    try:
        return _gemm(product_of(reading), workload, values)
    except NotUnderstood:
        return _rows(reading, workload, values)


class _Values(NamedTuple):
    known: dict[Atom, Polynomial]
    numbers: dict[str, float]

    def of(self, polynomial: Polynomial) -> int:
        found = polynomial.replace(self.known).constant
        if found is None:
            raise NotUnderstood("a size that is not a launch argument")
        return found

    def number(self, value: Value) -> float:
        """Of a floating factor."""
        if isinstance(value, Scalar) and value.name in self.numbers:
            return self.numbers[value.name]
        if isinstance(value, Literal):
            return float(value.text.rstrip("fFlL"))
        raise NotUnderstood("a factor that is not a launch argument")


def _values(workload: Workload) -> _Values:
    numbers = {name: value for name, (_, value) in workload.numbers().items()}
    whole = {n: v for n, v in numbers.items() if isinstance(v, int)}
    for root, extent in (("gridDim", workload.grid), ("blockDim", workload.block)):
        whole |= {f"{root}.{axis}": getattr(extent, axis) for axis in "xyz"}
    known: dict[Atom, Polynomial] = {Symbol(n): number(int(v)) for n, v in whole.items()}
    return _Values(known, {n: float(v) for n, v in numbers.items()})


class _Buffers:
    """Allocations by number, and where a parameter points into them."""

    def __init__(self, workload: Workload, element: str) -> None:
        self._workload, self._element = workload, element
        self.found: list[int] = []

    def at(self, array: str, elements: int) -> str:
        argument = self._workload.argument(array)
        if not isinstance(argument, PointerArgument):
            raise NotUnderstood(f"{array} is not a pointer")
        if argument.allocation not in self.found:
            self.found.append(argument.allocation)
        name = f"b{self.found.index(argument.allocation)}"
        return f"(({self._element}*)({name} + {argument.offset_bytes}) + {elements})"


def _gemm(form: MatmulForm, workload: Workload, values: _Values) -> LibraryCall:
    """Row-major C = alpha A B + beta C, which to BLAS is C^T = alpha B^T A^T + beta C^T."""
    alpha, beta = _factors(form, values)
    element = form.element
    m, n, k = (values.of(p) for p in (form.rows.size, form.columns.size, form.depth))
    buffers = _Buffers(workload, element)
    count = 1 if form.batch is None else values.of(form.batch.size)

    def operand(matrix: Matrix) -> tuple[str, int, int]:
        step, first = number(0), matrix.offset
        if form.batch is not None:
            linear = matrix.offset.linear_in(form.batch.symbol)
            if linear is None:
                raise NotUnderstood("batch matrices with unequal strides")
            step, first = linear
        return (
            buffers.at(matrix.array, values.of(first)),
            values.of(matrix.stride),
            values.of(step),
        )

    left, right = operand(form.left), operand(form.right)
    out = operand(form.out)
    _require_room(left[1], k if form.left.k_adjacent else m)
    _require_room(right[1], k if form.right.k_adjacent else n)
    _require_room(out[1], n)
    batched = form.batch is not None
    words = [
        "handle",
        f"CUBLAS_OP_{'T' if form.right.k_adjacent else 'N'}",
        f"CUBLAS_OP_{'N' if form.left.k_adjacent else 'T'}",
        *map(str, (n, m, k)),
        "&alpha",
    ]
    for at, (address, stride, step) in enumerate((right, left, out)):
        words += [*(["&beta"] if at == 2 else []), address, str(stride)]
        words += [f"{step}LL"] if batched else []
    name = f"cublas{LETTERS[element]}gemm{'StridedBatched' if batched else ''}"
    call = f"ok({name}({', '.join(words)}{f', {count}' if batched else ''}));"
    setup = f"{_HANDLE}const {element} alpha = {alpha!r}, beta = {beta!r};"
    return LibraryCall("cublas_v2.h", setup, call, tuple(buffers.found), element)


def _require_room(stride: int, extent: int) -> None:
    if stride < max(1, extent):
        raise NotUnderstood("rows that overlap")


def _factors(form: MatmulForm, values: _Values) -> tuple[float, float]:
    """alpha and beta of `alpha * total + beta * what stood there`."""

    def scaled(value: Value) -> tuple[Value, float]:
        if isinstance(value, Apply) and value.operator == "*":
            left, right = value.operands
            if isinstance(left, Scalar | Literal):
                return right, values.number(left)
            return left, values.number(right)
        return value, 1.0

    found = {"alpha": 0.0, "beta": 0.0}
    added = isinstance(form.value, Apply) and form.value.operator == "+"
    terms = form.value.operands if added and isinstance(form.value, Apply) else (form.value,)
    for term in terms:
        of, factor = scaled(term)
        if of != form.total and not (isinstance(of, GlobalLoad) and of.array == form.out.array):
            raise NotUnderstood("more than a product")
        found["alpha" if of == form.total else "beta"] += factor
    return found["alpha"], found["beta"]


def _rows(reading: Reading, workload: Workload, values: _Values) -> LibraryCall:
    """A sum of every row, or of every row times a vector."""
    form = sums_of_rows(reading)
    rows, columns = values.of(form.rows.size), values.of(form.columns)
    buffers = _Buffers(workload, form.element)
    matrix = buffers.at(form.matrix, values.of(form.offset))
    across, along = values.of(form.across), values.of(form.along)
    if form.vector is None:
        out = buffers.at(form.out, 0)
        setup = (
            "int* ends = nullptr;\n"
            f"    std::vector<int> offsets({rows} + 1);\n"
            f"    for (int r = 0; r <= {rows}; ++r) offsets[r] = (int)(r * {across}LL);\n"
            "    ok(cudaMalloc(&ends, offsets.size() * sizeof(int)));\n"
            "    ok(cudaMemcpy(ends, offsets.data(), offsets.size() * sizeof(int), "
            "cudaMemcpyHostToDevice));"
        )
        if across != columns:
            raise NotUnderstood("rows with a gap between them")
        call = _with_room(
            f"cub::DeviceSegmentedReduce::Sum(room, bytes, {matrix}, {out}, {rows}, ends, ends + 1)"
        )
        return LibraryCall("cub/cub.cuh", setup, call, tuple(buffers.found), form.element)
    vector = buffers.at(form.vector, 0)
    out = buffers.at(form.out, 0)
    by_rows = along == 1
    shape = f"CUBLAS_OP_T, {columns}, {rows}" if by_rows else f"CUBLAS_OP_N, {rows}, {columns}"
    if not by_rows and across != 1:
        raise NotUnderstood("a matrix without adjacent elements")
    _require_room(across if by_rows else along, columns if by_rows else rows)
    call = (
        f"ok(cublas{LETTERS[form.element]}gemv(handle, {shape}, &alpha, {matrix}, "
        f"{across if by_rows else along}, {vector}, 1, &beta, {out}, 1));"
    )
    setup = f"{_HANDLE}const {form.element} alpha = 1, beta = 0;"
    return LibraryCall("cublas_v2.h", setup, call, tuple(buffers.found), form.element)


def _sum(workload: Workload, source: str, out: str, at: int) -> LibraryCall:
    """The sum of all elements, added to what stood there. How many are all is the number that the
    launch is given and that fills the memory, else all of it."""
    argument = workload.argument(source)
    if not isinstance(argument, PointerArgument):
        raise NotUnderstood(f"{source} is not a pointer")
    element = {"i32": "int", "u32": "unsigned", "f32": "float", "f64": "double"}.get(
        argument.element
    )
    if element is None:
        raise NotUnderstood("elements that are not added")
    held = workload.allocations[argument.allocation].size_bytes - argument.offset_bytes
    most = held // ELEMENT_BYTES[argument.element]
    given = [v for _, v in workload.numbers().values() if isinstance(v, int) and 0 < v <= most]
    buffers = _Buffers(workload, element)
    first, target = buffers.at(source, 0), buffers.at(out, at)
    setup = (
        f"{element} begun{{}};\n"
        f"    ok(cudaMemcpy(&begun, {target}, sizeof begun, cudaMemcpyDeviceToHost));"
    )
    call = _with_room(
        f"cub::DeviceReduce::Reduce(room, bytes, {first}, {target}, {max(given, default=most)}, "
        f"Plus(), begun)"
    )
    return LibraryCall("cub/cub.cuh", setup, call, tuple(buffers.found), element)


def _with_room(call: str) -> str:
    return f"if (room == nullptr) {{ ok({call}); ok(cudaMalloc(&room, bytes + 1)); }} ok({call});"


_HANDLE = "cublasHandle_t handle;\n    ok(cublasCreate(&handle));\n    "

_PROGRAM = Template("""\
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
#include <$header>

template <typename Status> void ok(Status status) {
    if ((int)status == 0) return;
    std::fprintf(stderr, "the library's call fails with status %d\\n", (int)status);
    std::exit(1);
}
struct Plus {
    template <typename T> __host__ __device__ T operator()(const T& a, const T& b) const {
        return a + b;
    }
};
static std::vector<char> content(const char* path) {
    std::FILE* file = std::fopen(path, "rb");
    if (!file) { std::perror(path); std::exit(1); }
    std::fseek(file, 0, SEEK_END);
    std::vector<char> data(std::ftell(file));
    std::rewind(file);
    if (std::fread(data.data(), 1, data.size(), file) != data.size()) std::exit(1);
    std::fclose(file);
    return data;
}

int main(int, char** files) {
    char* b[$count];
    std::vector<char> before;
    for (int i = 0; i < $count; ++i) {
        before = content(files[1 + i]);
        ok(cudaMalloc(&b[i], before.size()));
        ok(cudaMemcpy(b[i], before.data(), before.size(), cudaMemcpyHostToDevice));
    }
    $names
    void* room = nullptr;
    size_t bytes = 0;
    $setup
    auto call = [&] { $call };
    call();
    ok(cudaDeviceSynchronize());
    const std::vector<char> wanted = content(files[1 + $count]);
    std::vector<char> got(wanted.size());
    ok(cudaMemcpy(got.data(), b[$count - 1], got.size(), cudaMemcpyDeviceToHost));
    double off = 0, all = 0;
    for (size_t i = 0; i < got.size() / sizeof($element); ++i) {
        const double x = (double)(($element*)got.data())[i];
        const double y = (double)((const $element*)wanted.data())[i];
        off += (x - y) * (x - y);
        all += y * y;
    }
    const double difference = all > 0 ? std::sqrt(off / all) : std::sqrt(off);

    int device = 0, l2 = 0;
    ok(cudaGetDevice(&device));
    ok(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device));
    char* flushed = nullptr;
    const size_t flush = 2 * (size_t)l2 + (1 << 20);
    ok(cudaMalloc(&flushed, flush));
    cudaEvent_t begin, end;
    ok(cudaEventCreate(&begin));
    ok(cudaEventCreate(&end));
    auto sample = [&](int calls, bool cold) {
        if (cold) ok(cudaMemsetAsync(flushed, calls, flush));
        ok(cudaEventRecord(begin));
        for (int i = 0; i < calls; ++i) call();
        ok(cudaEventRecord(end));
        ok(cudaEventSynchronize(end));
        float ms = 0;
        ok(cudaEventElapsedTime(&ms, begin, end));
        return 1e3 * ms / calls;
    };
    double one = 0;
    for (double spent = 0; spent < $warming; spent += 10 * one) one = sample(10, false);
    const bool cold = $cold;
    const int calls = cold ? 1 : std::max(1, (int)($least / one) + 1);
    std::vector<double> times;
    for (int i = 0; i < $samples; ++i) times.push_back(sample(calls, cold));
    std::sort(times.begin(), times.end());
    std::printf("library: us=%.9g difference=%.9g\\n", times[times.size() / 2], difference);
    return 0;
}
""")


def library_program(call: LibraryCall, *, cold: bool) -> str:
    """The text: `program BEFORE... WANTED`, a file a buffer, then what the result's memory holds
    after the author's kernel. Prints a line as in `SAYS`; any failure is exit code 1."""
    names = " ".join(f"char* b{i} = b[{i}]; (void)b{i};" for i in range(len(call.buffers)))
    return _PROGRAM.substitute(
        header=call.header, count=len(call.buffers), names=names, setup=call.setup, call=call.call,
        element=call.element, warming=WARMING_US, least=LEAST_SAMPLE_US, samples=SAMPLES,
        cold="true" if cold else "false",
    )  # fmt: skip
