"""The gate on preprocessed text: what hides behind macros, by the compilers that build it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.domain.judgement import Policy
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cpu.toolchain import find_toolchain
from cudaops.executors.cuda.build import FINAL_FLAGS
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.gates.preprocessed import CODE_FLAGS, preprocessed_gate
from cudaops.program.hygiene_directives import foreign_conditions
from cudaops.program.lexing import byte_text, lex
from cudaops.sandbox.workbench import Workbench
from tests.exploits.cases import load_case
from tests.gates.gate_bench import EXPLOITS, MM, bench_of, product, rewrite_of

HONEST = sorted((EXPLOITS / "honest").glob("*.cu"))


@pytest.fixture(scope="module")
def bench(cpu_executor: CpuExecutor, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return bench_of(cpu_executor, MM, tmp_path_factory.mktemp("bench"))


@pytest.fixture
def other_tools() -> Iterator[None]:
    """For tests that change PATH: what was found before counts no longer, nor afterwards."""
    find_toolchain.cache_clear()
    yield
    find_toolchain.cache_clear()


@pytest.mark.parametrize("path", HONEST, ids=lambda p: p.stem)
def test_honest_candidates_pass(bench: Workbench, path: Path, tmp_path: Path) -> None:
    policy = Policy(min_speedup=0.001, allow_ptx=load_case(path).allow_ptx)
    allowing = Workbench(
        bench.program, bench.captured, bench.executor, policy, tmp_path,
        sm_arch=bench.sm_arch, timeout_s=bench.timeout_s,
    )  # fmt: skip
    found = preprocessed_gate(allowing, rewrite_of(path.read_text()))
    assert found.gate.passed, found.gate.summary
    assert len(found.sha256) == 64


HIDDEN = {
    "host variable in a macro": ("#define EXTRA int hidden = 1;\nEXTRA\n", "host variable"),
    "pasted call": (
        "#define GLUE(a, b) a##b\n__device__ int go() { return GLUE(sys, tem)(0); }\n",
        "`system` is a host function",
    ),
    "constructor in a macro": (
        "#define EARLY __attribute__((constructor))\nEARLY __device__ void f() {}\n",
        "global constructor",
    ),
    "linkage in a macro": ('#define C "C"\nextern C { __device__ void f() {} }\n', 'extern "C"'),
    "assembly by a macro": ('#define A asm\n__device__ void f() { A(""); }\n', "inline assembly"),
    "ours by pasting": (
        "#define GLUE(a, b) a##b\nnamespace GLUE(cuda, ops) {}\n",
        "names of cudaops",
    ),
    "pragma operator": ('_Pragma("weak f") __device__ void f();\n', "`#pragma weak`"),
    "marker": ('# 1 "cudaops_unit.cpp" 2\n__device__ int f() { return 1; }\n', "should"),
    "nvcc alone": (
        "#ifdef __CUDA_ARCH_LIST__\n__device__ int f() { return 1; }\n#endif\n",
        "line 6: the preprocessed text differs for nvcc: `__device__` where g++ reads",
    ),
    "a value of nvcc's": (
        "__device__ int f() { return __CUDACC_VER_BUILD__; }\n",
        "`__CUDACC_VER_BUILD__`",
    ),
    "checked build only": (
        "#ifdef __SANITIZE_THREAD__\n__device__ int f() { return 1; }\n#endif\n",
        "the preprocessed text differs in the checked build",
    ),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_what_hides_is_found(bench: Workbench, case: str) -> None:
    above, expected = HIDDEN[case]
    gate = preprocessed_gate(bench, product(above)).gate
    assert not gate.passed
    assert not gate.quarantined
    assert expected in gate.summary


@pytest.mark.parametrize(
    ("above", "said"),
    [
        ("#ifdef __CUDA_ARCH_LIST__\n#endif\n", "a condition asks for `__CUDA_ARCH_LIST__`"),
        ("#if defined(__GNUC__) && 1\n#endif\n", "a condition asks for `__GNUC__`"),
        ("#define N __COUNTER__\n", "`__COUNTER__` is another one for each compiler"),
        ("#define WIDE 1\n#if WIDE && !defined(NARROW)\n#endif\n", "asks for `NARROW`"),
        ("#ifndef WIDE\n#define WIDE 1\n#endif\n#if WIDE > 0\n#endif\n", ""),
    ],
)
def test_without_nvcc_a_text_asks_for_its_own_names(above: str, said: str) -> None:
    found = [why for _, why in foreign_conditions(lex(byte_text(above)), frozenset())]
    assert len(found) == bool(said), found
    assert all(said in why for why in found)


@pytest.mark.parametrize("inside", ["sum += clock64() & 0;", "__nanosleep(1);"])
def test_a_clock_is_quarantined(bench: Workbench, inside: str) -> None:
    gate = preprocessed_gate(bench, product("", inside)).gate
    assert (gate.passed, gate.quarantined) == (False, True), gate.summary


@pytest.mark.parametrize(
    ("above", "inside"),
    [
        ("#define TILE 16\n#define AT(x, y) ((x) * TILE + (y))\n", "sum += 0 * AT(1, 2);"),
        ("#include <cuda_fp16.h>\n#include <math_constants.h>\n#include <cfloat>\n",
         "sum = fminf(sum, CUDART_INF_F) + 0 * FLT_MAX;"),
        ("#include <math.h>\nstatic const float top = INFINITY;\n", "sum = fminf(sum, top);"),
        ("", "extern __shared__ float s[]; assert(N > 0);"),
        ("", "extern __shared__ float2 s[][4];"),
        ("__forceinline__ __device__ int up(int a) { return a; }\n",
         '_Pragma("unroll") for (int i = 0; i < 4; ++i) sum += 0 * up(i);'),
        ("#if __CUDA_ARCH__ >= 800\n#define F 1\n#else\n#define F 2\n#endif\n", "sum += 0 * F;"),
        ("struct __align__(16) Four { float x, y, z, w; };\n", ""),
    ],
)  # fmt: skip
def test_honest_macros_pass(bench: Workbench, above: str, inside: str) -> None:
    gate = preprocessed_gate(bench, product(above, inside)).gate
    assert gate.passed, gate.summary


def test_the_hash_is_of_what_the_compiler_sees(bench: Workbench) -> None:
    plain = preprocessed_gate(bench, product("", "sum += 1;")).sha256
    by_macro = product("#define ONE 1\n", "sum += ONE;")
    commented = product("", "sum += 1; // one")
    other = product("", "sum += 2;")
    assert preprocessed_gate(bench, by_macro).sha256 != plain  # another line
    assert preprocessed_gate(bench, commented).sha256 == plain
    assert preprocessed_gate(bench, other).sha256 != plain


def test_without_a_compiler_the_gate_fails(
    bench: Workbench, other_tools: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    found = preprocessed_gate(bench, product())
    assert (found.gate.passed, found.gate.quarantined, found.sha256) == (False, False, "")
    assert "g++ is not installed" in found.gate.summary


@pytest.mark.nvcc
def test_an_nvcc_that_fails_fails_the_gate(
    bench: Workbench, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cache / "broken-nvcc"
    folder.mkdir(exist_ok=True)
    version = f'[ "$1" = --version ] && exec {find_nvcc()} --version\n'
    (folder / "nvcc").write_text(f"#!/bin/sh\n{version}echo 'error: no licence' >&2\nexit 1\n")
    (folder / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    never_seen = product(f"// {secrets.token_hex(8)}\n")  # else the text is known already
    found = preprocessed_gate(bench, never_seen)
    assert (found.gate.passed, found.gate.quarantined, found.sha256) == (False, False, "")
    assert "nvcc -E refuses it" in found.gate.summary


def test_a_text_that_no_preprocessor_takes_fails_the_gate(bench: Workbench) -> None:
    gate = preprocessed_gate(bench, product("#if (\n#endif\n")).gate
    assert not gate.passed
    assert "-E refuses it" in gate.summary


def test_the_flags_are_those_of_the_build() -> None:
    assert set(CODE_FLAGS) <= set(FINAL_FLAGS)


@pytest.mark.nvcc
def test_nvcc_is_asked_wherever_it_is(bench: Workbench) -> None:
    only_nvcc = "#ifdef __CUDACC_VER_BUILD__\nint hidden;\n#endif\n"
    assert find_nvcc() is not None
    assert shutil.which("g++") is not None
    gate = preprocessed_gate(bench, product(only_nvcc)).gate
    assert not gate.passed
    assert gate.summary.startswith("nvcc: ")
