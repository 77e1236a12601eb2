"""Plan expressions in C++ against the evaluator that plans are judged by, and arguments made."""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.domain.workload import Element
from cudaops.errors import InputError, PlanError
from cudaops.executors.cpu.toolchain import find_toolchain
from cudaops.executors.cuda.protocol import Launchable
from cudaops.executors.cuda.symbols import PlacedParameter
from cudaops.executors.cuda.toolchain import require_nvcc, toolkit_home
from cudaops.preload.library import SOURCES
from cudaops.preload.plan_source import CubinKernel, plan_source
from cudaops.program.cpp import Speller, cpp
from cudaops.program.expressions import NullPointer, PointerValue, parse
from cudaops.program.plans import make_rewrite
from tests.executors.cuda.gpu_builds import program_of
from tests.preload.builds import workload

KERNEL = program_of(
    "__global__ void k(float* A, float* C, long long n, int m, double a) { A[n] = C[m] * a; }"
).kernel("k")
INCLUDED = [f"-I{folder}" for folder in SOURCES]
BASE = 1 << 20
VALUES: dict[str, list[int | float | None]] = {
    "A": [0, 256, 12], "C": [None, 64, 12], "n": [0, 2**62, -(2**63)], "m": [1, -1, 7],
    "a": [0.0, 2.5, -1e300],
}  # fmt: skip
"""Three sets of arguments; pointers as offsets in one allocation, None for a null pointer."""
FIXED = (
    "n + m", "n * m", "n * 2", "-n", "n - 1", "n / m", "n % m", "m / n", "n / (m - 7)", "n % 0",
    "ceil_div(n, m)", "ceil_div(m, 4)", "min(n, m)", "max(a, m)", "a * m", "a / a", "m % a",
    "n == 0 || m / n > 0", "n != 0 && m / n >= 0", "m > 0 ? n : n / 0", "!m + 2", "-(m) * 3",
    "A == C", "A != nullptr", "C == 0", "A + m", "A + n", "C + 1", "m + A", "A - m", "A ? m : 5",
    "aligned(A, 16)", "aligned(C + m, 4)", "(A + 4 == C) + m", "m < a", "(m < n) == (n > m)",
    "sizeof(double) * m", "m - 0x10 >= -9", "n - (0 - n)", "a != a", "A == A && !C",
    "n - n / m * m", "9223372036854775807 + m", "min(m, 2) * max(n, 1)",
)  # fmt: skip


class Spelled(Speller):
    """As a library spells a plan, but for where the author's arguments stand."""

    def integer(self, value: int) -> str:
        return f"Whole({value}LL)"

    def __call__(self, name: str) -> str:
        return (
            "Whole(8LL)" if name == "sizeof(double)" else name if name == "nullptr" else f"v_{name}"
        )


def drawn(seed: int) -> Iterator[str]:
    """Integer expressions at random."""
    source = random.Random(seed)

    def one(depth: int) -> str:
        if depth == 0 or source.random() < 0.2:
            return source.choice(["n", "m", "n", "m", str(source.randrange(1, 2**40)), "3"])
        left, right = one(depth - 1), one(depth - 1)
        kind = source.randrange(4)
        if kind == 0:
            return f"{source.choice(['min', 'max', 'ceil_div'])}({left}, {right})"
        if kind == 1:
            return f"(n {source.choice(['<', '==', '>='])} {left} ? {left} : {right})"
        return f"({left} {source.choice(['+', '-', '*', '/', '%', '<', '!=', '&&'])} {right})"

    for _ in range(150):
        yield f"n + 0 * ({one(3)}) + ({one(3)})"


def evaluated(text: str, at: int) -> str:
    """What the judged evaluator makes of it."""
    pointers = {
        name: NullPointer() if (place := VALUES[name][at]) is None
        else PointerValue(allocation=0, offset_bytes=int(place), element_bytes=4)
        for name in ("A", "C")
    }  # fmt: skip
    numbers = {name: VALUES[name][at] for name in ("n", "m", "a")}
    names = {**pointers, **numbers, "nullptr": NullPointer(), "sizeof(double)": 8}
    try:
        value = parse(text).evaluate(names)  # type: ignore[arg-type]
    except PlanError:
        return "undefined"
    if isinstance(value, PointerValue):
        return str(BASE + value.offset_bytes)
    return f"{value:.17g}" if isinstance(value, float) else str(value)


def spelled(values: list[int | float | None], kind: str) -> str:
    if kind == "Pointer":
        return ", ".join(f"Pointer({0 if v is None else BASE + int(str(v))}, 4)" for v in values)
    if kind == "double":
        return ", ".join(map(repr, values))
    return ", ".join("Whole(-9223372036854775807LL - 1)" if v == -(2**63) else f"Whole({v}LL)"
                     for v in values)  # fmt: skip


def test_expressions_mean_what_the_judged_plan_meant(tmp_path: Path) -> None:
    texts = [*FIXED, *drawn(1), *drawn(2)]
    spell = Spelled(KERNEL, frozenset(), {})
    kinds = {"A": "Pointer", "C": "Pointer", "n": "Whole", "m": "Whole", "a": "double"}
    names = [
        f"const {kind} v_{name}_[] = {{{spelled(VALUES[name], kind)}}}; const {kind} "
        f"v_{name} = v_{name}_[at]; (void)v_{name};"
        for name, kind in kinds.items()
    ]
    shown = "\n".join(f"    show({cpp(parse(text), spell)});" for text in texts)
    lines = (
        '#include <stdio.h>\n#include "plan.h"\nusing namespace cudaops;\n'
        'static void end(bool known) { puts(known ? "" : "undefined"); undefined_value = false; }\n'
        "#define SHOW(kind, format, value) static void show(kind v) { (void)v; \\\n"
        "    if (!undefined_value) printf(format, value); end(!undefined_value); }\n"
        'SHOW(Whole, "%lld", v.value) SHOW(bool, "%d", v) SHOW(double, "%.17g", v)\n'
        'SHOW(long long, "%lld", v) SHOW(Pointer, "%llu", v.address)\n'
        f"int main() {{ for (int at = 0; at < 3; ++at) {{\n    {' '.join(names)}\n{shown}\n}} }}\n"
    )
    (tmp_path / "main.cpp").write_text(lines)
    subprocess.run(
        [find_toolchain().gxx, "-std=c++17", "-w", *INCLUDED, "-o", "main", "main.cpp"],
        cwd=tmp_path, check=True, timeout=120,
    )  # fmt: skip
    printed = subprocess.run(
        [tmp_path / "main"], capture_output=True, text=True, check=True, timeout=20
    ).stdout.splitlines()
    wanted = [evaluated(text, at) for at in range(3) for text in texts]
    wrong = [
        (texts[i % len(texts)], i // len(texts), got, want)
        for i, (got, want) in enumerate(zip(printed, wanted, strict=True))
        if got != want
    ]
    assert not wrong
    assert {"undefined", "0", "1"} < set(printed)


def test_halves_are_read_exactly(tmp_path: Path) -> None:
    cases = [0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0xC000, 0x7BFF, 0x7C00, 0xFC00, 0x3555]
    checks = "".join(f"    show({bits}u);\n" for bits in cases)
    (tmp_path / "main.cpp").write_text(
        '#include <stdio.h>\n#include "plan.h"\nstatic void show(unsigned bits) {\n'
        "    const unsigned short b = (unsigned short)bits;\n"
        '    printf("%.17g %.17g\\n", cudaops::half(&b), cudaops::bfloat16(&b));\n}\n'
        f"int main() {{\n{checks}}}\n"
    )
    subprocess.run(
        [find_toolchain().gxx, "-std=c++17", *INCLUDED, "-o", "main", "main.cpp"],
        cwd=tmp_path, check=True, timeout=60,
    )  # fmt: skip
    done = subprocess.run(
        [tmp_path / "main"], capture_output=True, text=True, check=True, timeout=20
    )
    for bits, line in zip(cases, done.stdout.splitlines(), strict=True):
        (half,) = struct.unpack("<e", struct.pack("<H", bits))
        (wide,) = struct.unpack("<f", struct.pack("<I", bits << 16))
        assert line == f"{half:.17g} {wide:.17g}"


@pytest.mark.nvcc
def test_the_driver_is_declared_as_nvidia_declares_it(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(
        """
        #include <cuda.h>
        #include "driver.h"
        #undef cuGetProcAddress
        template <class> struct Count;
        template <class R, class... P> struct Count<R(P...)> {
            static constexpr int value = sizeof...(P);
        };
        template <class R, class... P> struct Count<R (*)(P...)> {
            static constexpr int value = sizeof...(P);
        };
        using namespace cudaops;
        static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
        static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
        static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
        static_assert(offsetof(LaunchConfig, attribute_count) ==
                      offsetof(CUlaunchConfig, numAttrs));
        static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
        static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
        static_assert(CU_LAUNCH_ATTRIBUTE_IGNORE == 0 && CU_LAUNCH_ATTRIBUTE_COOPERATIVE == 2 &&
                      CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION == 4 &&
                      CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION == 6);
        static_assert(COMPUTE_CAPABILITY_MAJOR == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
        static_assert(COMPUTE_CAPABILITY_MINOR == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
        static_assert(MAX_THREADS_PER_BLOCK == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        static_assert(MAX_DYNAMIC_SHARED_SIZE_BYTES ==
                      CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        static_assert(CAPTURE_MODE_RELAXED == CU_STREAM_CAPTURE_MODE_RELAXED);
        static_assert(PER_THREAD_DEFAULT_STREAM == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
        static_assert(NOT_INITIALIZED == CUDA_ERROR_NOT_INITIALIZED);
        static_assert(Count<LaunchKernel>::value == Count<decltype(&::cuLaunchKernel)>::value);
        static_assert(Count<LaunchKernelEx>::value == Count<decltype(&::cuLaunchKernelEx)>::value);
        #define SAME(name, parameters) \\
            static_assert(Count<Result parameters>::value == Count<decltype(&::name)>::value);
        CUDAOPS_DRIVER_CALLS(SAME)
        CUDAOPS_OPTIONAL_CALLS(SAME)
        int main() { return reinterpret_cast<size_t>(CU_STREAM_PER_THREAD) == 2 ? 0 : 1; }
        """
    )
    include = toolkit_home(require_nvcc()) / "include"
    command = [find_toolchain().gxx, "-std=c++17", *INCLUDED, f"-I{include}"]
    subprocess.run([*command, "-fsyntax-only", "main.cpp"], cwd=tmp_path, check=True, timeout=60)


def taken(kind: str, size_bytes: int) -> CubinKernel:
    launchable = Launchable(entry=0, symbol="s", shown="s", parameter_types=(kind,))
    return CubinKernel(launchable, [PlacedParameter(0, size_bytes)])


def plan_of(argument: str, parameter: str, kind: str, size_bytes: int, element: Element) -> str:
    rewrite = f"""
    // @launch s grid=(1) block=(1) args=({argument})
    __global__ void s({parameter} v) {{ }}
    """
    program = program_of(f"__global__ void k(float* y, {kind} v) {{ }}")
    captured = workload("k", y="f32", v=(element, 1))
    return plan_source(
        "plan", make_rewrite(rewrite, "user", "t", "w"), program.kernel("k"), [captured],
        [taken(parameter, size_bytes)],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("parameter", "size_bytes", "kind", "element", "line"),
    [
        ("int", 4, "int", "i32", "const_cast<void*>(given[1])"),
        ("unsigned int", 4, "int", "i32", "const_cast<void*>(given[1])"),
        ("long", 8, "int", "i32", "put<long>(parameter0_0, given_v)"),
        ("float", 4, "int", "i32", "put<float>(parameter0_0, given_v)"),
        ("int", 4, "float", "f32", "put<int>(parameter0_0, given_v)"),
        ("double", 8, "float", "f32", "put<double>(parameter0_0, given_v)"),
        ("bool", 1, "char", "i8", "put<bool>(parameter0_0, given_v)"),
        ("__half", 2, "__half", "f16", "const_cast<void*>(given[1])"),
        ("Shade", 4, "int", "i32", "const_cast<void*>(given[1])"),
        ("Shade", 1, "int", "i32", "put<unsigned char>(parameter0_0, given_v)"),
    ],
)
def test_an_argument_is_handed_on_or_converted(
    parameter: str, size_bytes: int, kind: str, element: Element, line: str
) -> None:
    assert line in plan_of("v", parameter, kind, size_bytes, element)


def test_a_half_that_would_have_to_be_rounded_is_refused() -> None:
    with pytest.raises(InputError, match=r"`v \* 2` becomes a `__half`, which the library cannot"):
        plan_of("v * 2", "__half", "__half", 2, "f16")


def test_a_grid_must_hold_whole_clusters() -> None:
    rewrite = make_rewrite(
        "// @tune PAIR = 2, 4\n// @launch s grid=(8) block=(1) args=(v)\n"
        "__global__ void __cluster_dims__(PAIR) s(int v) { }\n", "user", "t", "w",
    )  # fmt: skip
    program = program_of("__global__ void k(float* y, int v) { }")
    captured = workload("k", y="f32", v=("i32", 1))
    given = (program.kernel("k"), [captured], [taken("int", 4)])
    text = plan_source("plan", rewrite.tuned_with({"PAIR": 4}), *given)
    shaped, clustered = (text.index(f"run.{word}(0, ") for word in ("shaped", "clustered"))
    assert shaped < clustered < text.index("run.begin()")
    assert "if (!run.clustered(0, 4, 1, 1)) return false;" in text
