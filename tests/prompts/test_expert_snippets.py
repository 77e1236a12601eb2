"""Code in the expert notes compiles, is device code alone, and its directives read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cudaops.executors.cpu.toolchain import compile_flags, find_toolchain
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.program.directives import read_directives
from cudaops.program.hygiene import check_source
from cudaops.program.plans import make_rewrite
from cudaops.prompts.expert_notes import ExpertNote, all_notes

NOTES = all_notes()

AROUND: dict[str, str] = {
    "severe_memory_bound": """
        constexpr int TM = 4, TN = 4;
        __global__ void f(float (*As)[64], float (*Bs)[64], int k, int ty, int tx) {
            float acc[TM][TN] = {}, b[TN];
            @
        }""",
    "near_peak_compute": "__global__ void f(const float* x, float* y, float width, int n) { @ }",
    "huge_dram_traffic": "__global__ void f(const float* x, int n) { @ }",
    "low_occupancy": "__global__ void f() { @ tile[0] = partial[0]; }",
    "low_waves_per_sm": """
        __global__ void f(const float* A, const float* B, float* partial, int M, int N, int K,
                          int part, int row, int col) { float acc = 0.0f; @ }""",
    "poor_coalescing": """
        __global__ void f(const float* in, float* out, int w, int h, int x0, int y0) {
            __shared__ float tile[32][33];
            @
        }""",
    "low_l1_hit": """
        constexpr int TILE = 64;
        __global__ void f(const float* x, int base) { __shared__ float tile[TILE]; @ }""",
    "low_l2_hit": """
        constexpr int GROUP = 8;
        __global__ void f(int* at) { @ at[id] = bx + by; }""",
    "smem_bank_conflicts": """
        __global__ void f(int row, int col, float value, float sum) {
            __shared__ float tile[32][32];
            @
        }""",
    "stall_long_scoreboard": """
        __device__ float work(float v) { return v * v; }
        __global__ void f(const float* x, int i, int n, int stride) { float sum = 0.0f; @ }""",
    "stall_short_scoreboard": """
        constexpr int BK = 8;
        __global__ void f(float (*As)[64], float (*Bs)[64], int ty, int tx) {
            float acc = 0.0f;
            @
        }""",
    "stall_mio_throttle": """
        __global__ void f(const float* x, int i) { float sum0 = 0.0f, sum1 = 0.0f; @ }""",
    "stall_math_pipe": """
        __global__ void f(const float* x, int n, int at, int step, int period) {
            float sum = 0.0f;
            @
        }""",
    "stall_barrier": "__global__ void f(float v) { __shared__ float partial[32]; @ }",
    "stall_wait": "__global__ void f(const float* a, const float* b, int i, int n) { @ }",
    "stall_membar": """
        __global__ void f(float* partial, unsigned* done, float sum) { __shared__ bool last; @ }""",
    "low_ipc": "__global__ void f(const float* x, int n) { @ }",
}
"""What stands around a snippet that is no whole function; it takes the place of `@`."""

every_note = pytest.mark.parametrize("note", NOTES, ids=lambda note: note.id)


def snippet(note: ExpertNote) -> str:
    (code,) = re.findall(r"^```cuda\n(.*?)^```$", note.text, re.MULTILINE | re.DOTALL)
    return str(code)


def whole(note: ExpertNote) -> str:
    return AROUND.get(note.id, "@").replace("@", snippet(note), 1)


def unit() -> str:
    """Every snippet in a namespace of its own, its lines numbered by note."""
    parts = [
        f"namespace {note.id} {{\n#line 1 \"{note.id}\"\n{whole(note)}\n}}" for note in NOTES
    ]  # fmt: skip
    return "#include <cuda_runtime.h>\n" + "\n".join(parts) + "\n"


def test_whole_functions_need_nothing_around_them() -> None:
    alone = {note.id for note in NOTES if "__global__" in snippet(note)}
    assert alone | set(AROUND) == {note.id for note in NOTES}
    assert not alone & set(AROUND)


@every_note
def test_a_snippet_is_short_and_device_code_alone(note: ExpertNote) -> None:
    assert 2 <= len(snippet(note).splitlines()) <= 8
    assert all(len(line) <= 100 for line in snippet(note).splitlines())
    assert check_source(whole(note)) == ()


@every_note
def test_directives_that_a_note_shows_read(note: ExpertNote) -> None:
    for directive in re.findall(r"`(// @\w+ [^`]+)`", note.text):
        found = read_directives(directive + "\n")
        assert found.tune or found.requires or found.scratch
    if "// @launch" in snippet(note):
        assert make_rewrite(snippet(note), "test", note.id, "a note").plan.launches


def test_every_snippet_compiles_for_the_processor(tmp_path: Path) -> None:
    (tmp_path / "notes.cpp").write_text(unit())
    command = [find_toolchain().gxx, *compile_flags("plain"), "-fsyntax-only", "notes.cpp"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.nvcc
def test_every_snippet_compiles_for_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "notes.cu").write_text(unit())
    command = [str(find_nvcc()), "-arch=sm_86", "-cubin", "-o", "notes.cubin", "notes.cu"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
