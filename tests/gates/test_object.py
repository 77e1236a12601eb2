"""The object gate on the `cpu` executor: objects of g++, PTX of nvcc, words where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudaops.domain.judgement import Gate, Policy
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.gates.object import _plain, object_gate
from cudaops.sandbox.workbench import Workbench
from tests.gates.gate_bench import MM, bench_of, compiled, product

SYSTEM_PATH = "/usr/bin:/bin"
"""g++ and binutils, and on most machines no nvcc."""


@pytest.fixture(scope="module")
def bench(cpu_executor: CpuExecutor, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return bench_of(cpu_executor, MM, tmp_path_factory.mktemp("bench"))


@pytest.fixture
def no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide nvcc, as on a machine without a CUDA toolkit."""
    monkeypatch.setenv("PATH", SYSTEM_PATH)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    if find_nvcc() is not None:
        pytest.skip("nvcc cannot be hidden here: it is where g++ is, or in a wheel")


def gate(bench: Workbench, above: str = "", inside: str = "") -> Gate:
    rewrite = product(above, inside)
    return object_gate(bench, rewrite, compiled(bench, rewrite))


OUTSIDE = "}} {}\nnamespace cudaops_candidate {{\n"
"""Leaves the candidate's namespace, which `hygiene` alone would not let through."""
OBJECTS = {
    "constructor": (
        "__device__ int made;\n__attribute__((constructor)) void f() { made = 1; }\n", "",
        "of global constructors",
    ),
    "destructor": (
        "__device__ int made;\n__attribute__((destructor)) void f() { made = 1; }\n", "",
        "of global constructors",
    ),
    "object": (
        "__device__ volatile int made; struct E { E() { made = 1; } }; static E e;\n", "",
        "before the kernels are launched",
    ),
    "object by a call": (
        "__attribute__((noinline)) int f() { return threadIdx.x; }\nint x = f();\n", "",
        "before the kernels are launched",
    ),
    "object of a function": (
        "__attribute__((noinline)) inline int f() { return threadIdx.x; }\n",
        "static int once = f(); sum += 0 * once;", "`__cxa_guard_acquire` is a host function",
    ),
    "host call": ("", 'if (N < 0) std::remove("x");', "`remove` is a host function"),
    "host API": ("", "if (N < 0) cudaDeviceSynchronize();", "cudaDeviceSynchronize"),
    "foreign name": (
        OUTSIDE.format("float __attribute__((noinline)) outside(float x) { return x; }"),
        "sum += ::outside(sum);",
        "`outside(float)` is defined",
    ),
    "interposed": (
        OUTSIDE.format("inline __attribute__((noinline)) int cudaFreeArray(int x) { return x; }"),
        "sum += ::cudaFreeArray(N);",
        "outside of the candidate's namespace",
    ),
    "section": (
        '__attribute__((section("hooks"))) void f() { }\n', "", "section `hooks` is none",
    ),
    "ifunc": (
        OUTSIDE.format(
            'extern "C" { static int real() { return 1; } static int (*pick())() { return real; }'
            ' int chosen() __attribute__((ifunc("pick"))); }'
        ),
        "",
        "chosen",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OBJECTS)
def test_what_an_object_file_must_not_hold(bench: Workbench, no_nvcc: None, case: str) -> None:
    above, inside, expected = OBJECTS[case]
    found = gate(bench, above, inside)
    assert (found.passed, found.quarantined) == (False, False), found.summary
    assert expected in found.summary


NEAR_MISSES = {
    "nothing": ("", ""),
    "maths": ("", "sum = expf(sum) + powf(sum, 2) + (float)sin((double)sum) + fmodf(sum, 3);"),
    "memory": ("", "float t[64]; memset(t, 0, sizeof t); memcpy(t, A, N % 64); sum += t[N % 64];"),
    "assertion": ("#include <cmath>\n", "assert(N > 0);"),
    "tables": ("__constant__ float w[2] = {1, 2}; constexpr int z = 2;\n", "sum += w[N % z];"),
    "not inlined": ("__device__ __noinline__ float f(float x) { return x; }\n", "sum = f(sum);"),
    "template": ("template <int T> __device__ float g(float x) { return x; }\n", "sum = g<1>(1);"),
    "shared": ("", "__shared__ float s[16]; s[threadIdx.x] = sum; __syncthreads(); sum = s[0];"),
    "shared at file scope": (
        "extern __shared__ float s[];\nnamespace n { extern __shared__ int4 t[]; }\n",
        "if (N < 0) { s[threadIdx.x] = sum; n::t[0] = int4(); sum = s[0]; }",
    ),
    "virtual": (
        "struct V { __device__ virtual float f(float x) { return x; } };\n",
        "V v; V* p = &v; sum = p->f(sum);",
    ),
    "wide integers": ("", "long long big = N; sum += (float)(0 * (big / (N + 1) % 7));"),
}  # fmt: skip


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_what_honest_code_compiles_to_passes(bench: Workbench, case: str) -> None:
    found = gate(bench, *NEAR_MISSES[case])
    assert found.passed, found.summary
    assert found.numbers["init_array_bytes"] == found.numbers["init_array_bytes_baseline"]


SUSPICIOUS = {
    "state": ("__device__ int count;\n", "atomicAdd(&count, 1);", "`count`"),
    "static": ("", "static int seen; seen += 1;", "seen"),
    "clock": ("", "sum += 0 * clock64();", "clock"),
    "half": ("#include <cuda_fp16.h>\n", "sum = __half2float(__float2half(sum));", "fp16"),
    "half sums": (
        "#include <cuda_fp16.h>\n",
        "__half h = __hadd(__float2half(sum), __float2half(sum)); sum = __half2float(h);",
        "fp16",
    ),
    "bf16": ("#include <cuda_bf16.h>\n", "sum = __bfloat162float(__float2bfloat16(sum));", "bf16"),
    "coarse": ("", "sum = __sinf(sum);", "sin"),
    "print": ("", 'if (N == 3) printf("%d", N);', "printf"),
    "sleep": ("", "__nanosleep(1);", "nanosleep"),
}


@pytest.mark.nvcc
@pytest.mark.parametrize("case", SUSPICIOUS)
def test_device_code_that_a_person_should_look_at(bench: Workbench, case: str) -> None:
    above, inside, expected = SUSPICIOUS[case]
    found = gate(bench, above, inside)
    assert (found.passed, found.quarantined) == (False, True), found.summary
    assert expected in found.summary


@pytest.mark.parametrize("case", SUSPICIOUS)
def test_without_nvcc_its_words_are_looked_at(bench: Workbench, no_nvcc: None, case: str) -> None:
    above, inside, expected = SUSPICIOUS[case]
    found = gate(bench, above, inside)
    assert (found.passed, found.quarantined) == (False, True), found.summary
    assert expected in found.summary
    assert "nvcc is not installed" in found.summary


def test_without_nvcc_a_passed_gate_says_what_was_not_looked_at(
    bench: Workbench, no_nvcc: None
) -> None:
    found = gate(bench)
    assert found.passed
    assert "PTX was not inspected" in found.summary


@pytest.mark.nvcc
def test_a_variable_that_nothing_writes_is_no_state(bench: Workbench) -> None:
    found = gate(bench, "__device__ float table[4] = {0, 0, 0, 0};\n", "sum += table[N % 4];")
    assert found.passed, found.summary
    assert found.numbers["written_variables"] == 0


@pytest.mark.nvcc
def test_a_kernel_that_is_not_launched_is_named(bench: Workbench) -> None:
    found = gate(bench, "__global__ void spare(float* p) { p[0] = 1; }\n")
    assert found.passed, found.summary
    assert "does not launch `spare" in found.summary


@pytest.mark.nvcc
def test_a_precision_that_the_user_allowed_passes_and_is_named(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    policy = Policy(min_speedup=0.001, seed=11, allow_precision="fp16")
    bench = bench_of(cpu_executor, MM, tmp_path, policy)
    found = gate(bench, *SUSPICIOUS["half"][:2])
    assert found.passed, found.summary
    assert "fp16: allowed by --allow-precision" in found.summary


@pytest.mark.nvcc
def test_an_nvcc_that_fails_fails_the_gate(
    bench: Workbench, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cache / "failing-nvcc"
    folder.mkdir(exist_ok=True)
    (folder / "nvcc").write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'release 99.0, V99.0.1' && exit 0\n"
        "echo 'error: no licence' >&2\nexit 1\n"
    )
    (folder / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    found = gate(bench)
    assert (found.passed, found.quarantined) == (False, False)
    assert "cannot be inspected: nvcc -ptx refuses it" in found.summary


def test_an_object_file_that_is_gone_fails_the_gate(bench: Workbench, tmp_path: Path) -> None:
    rewrite = product()
    elsewhere = compiled(bench, rewrite).model_copy(update={"folder": str(tmp_path)})
    found = object_gate(bench, rewrite, elsewhere)
    assert (found.passed, found.quarantined) == (False, False)
    assert "cannot be inspected" in found.summary


def test_a_draft_fails_the_gate(bench: Workbench) -> None:
    rewrite = product()
    draft = compiled(bench, rewrite).model_copy(update={"draft": True})
    assert "draft" in object_gate(bench, rewrite, draft).summary


@pytest.mark.parametrize(
    ("symbol", "plain"),
    [
        # nvcc 13.0.88: a unit with kernels, by itself and beside others of the same name
        ("_ZN44_INTERNAL_03e7e358_15_cudaops_unit_cu__Z1kPf4cuda3std1xE", "_ZN4cuda3std1xE"),
        (
            "_ZN51_INTERNAL_03e7e358_15_cudaops_unit_cu_9e107d9d_57094cuda3std1xE",
            "_ZN4cuda3std1xE",
        ),
        (
            "_ZN3ab153_GLOBAL__N__03e7e358_15_cudaops_unit_cu_9e107d9d_57097counterE",
            "_ZN3ab17counterE",
        ),
        ("_ZN99_INTERNAL_03e7e358_15_cudaops_unit_cu_short", None),
        ("_Z1kPf", None),
    ],
)
def test_what_nvcc_puts_into_names_is_no_part_of_them(symbol: str, plain: str | None) -> None:
    assert _plain(symbol) == (symbol if plain is None else plain)
