"""The built-in notes say the figures of the verdict rules, and advise what a rewrite can hold."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cudaops.cuda.rules import BUSY_PCT, RULES, STRAINED_PCT
from cudaops.domain.judgement import Policy
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cpu.toolchain import INCLUDE
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.gates.evaluate import evaluate
from cudaops.program.hygiene import check_source
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.rag.notes import Note, builtin_notes
from cudaops.sandbox.workbench import open_workbench

SUM = Path(__file__).parents[1] / "prompts" / "programs" / "two_step_sum.cu"
"""`total(const float* x, float* out, int n)` for n = 5003."""
NOTES = {note.id: note for note in builtin_notes()}
FLAGS = re.MULTILINE | re.DOTALL
every_note = pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
BOTTLENECKS = {name: note for name, note in NOTES.items() if note.kind == "bottleneck"}

NOT_IN_A_REWRITE = re.compile(
    r"maxrregcount|[Cc]ompiler flags|cudaFuncSetAttribute|CUDA graphs?\b|\b[Ll]ibrar(?:y|ies)\b"
    r"|CUTLASS|cuBLAS|libcu\+\+|\bclusters\b|\bcp\.async|\bFuse with\b"
    r"|tcgen05|wgmma|setmaxnreg|griddepcontrol|\bldmatrix\.|mma\.sync|mbarrier\.|\bprefetch\."
)
"""Host code, flags, launch attributes, other people's code, assembly."""
SAID_SO = re.compile(
    r"[Oo]utside of (?:a rewrite|one)|is refused|cannot ask for|libraries to be allowed"
)
BUFFERS_RUN = """// @requires n >= 1024
// @launch sum grid=(1) block=(256) smem=4*256 args=(x, out, n)
__device__ void compute(const float4* tile) {
    extern __shared__ float of_thread[];
    const float4 v = tile[255 - threadIdx.x];
    of_thread[threadIdx.x] += (v.x + v.y) + (v.z + v.w);
}
HERE
__global__ void sum(const float* x, float* out, int n) {
    extern __shared__ float of_thread[];
    __shared__ float4 buffer[2][256];
    of_thread[threadIdx.x] = 0.0f;
    run(reinterpret_cast<const float4*>(x), buffer, n / 1024);
    __syncthreads();
    if (threadIdx.x > 0) return;
    float v = 0.0f;
    for (int t = 0; t < 256; ++t) v += of_thread[t];
    for (int i = n / 1024 * 1024; i < n; ++i) v += x[i];
    *out = v;
}
"""
"""What stands around the function that prefetches through registers; it takes the place of HERE."""


def snippets(note: Note) -> list[str]:
    return re.findall(r"^```cuda\n(.*?)^```$", note.body, FLAGS)


def whole(snippet: str) -> str:
    """With a function around it where it is only statements."""
    if re.search("__global__|__device__", snippet):
        return snippet
    head = re.match(r"(?:(?:#include|using) .*\n)*", snippet)
    at = head.end() if head else 0
    return f"{snippet[:at]}__global__ void f() {{\n{snippet[at:]}}}\n"


def blocks(note: Note) -> list[str]:
    """Paragraphs and lists of advice; a list and the line that leads it are one."""
    advice = re.sub(r"^## How to recognise it$.*?(?=^## )", "", note.body, flags=FLAGS)
    return re.sub(r"^```.*?^```$", "", advice, flags=FLAGS).split("\n\n")


@pytest.mark.parametrize("note", BOTTLENECKS.values(), ids=BOTTLENECKS)
def test_percentages_that_recognise_are_those_of_the_rules(note: Note) -> None:
    rules = [rule for rule in RULES if rule.subtype in note.subtypes]
    allowed = {c.threshold for rule in rules for c in (*rule.conditions, *rule.unless)}
    recognise = re.split(r"^## .+$", note.body, flags=re.MULTILINE)[1]
    items = " ".join(re.findall(r"^- .*(?:\n {2,}\S.*)*", recognise, re.MULTILINE))
    said = {float(number) for number in re.findall(r"(\d+(?:\.\d+)?)(?= to \d+ %| %)", items)}
    assert said <= allowed | {STRAINED_PCT, BUSY_PCT}
    assert not re.search(r"\ba (?:third|quarter|fifth|tenth)\b", items), "say it in percent"


@every_note
def test_what_a_rewrite_cannot_do_is_said_to_be_so(note: Note) -> None:
    for block in blocks(note):
        if NOT_IN_A_REWRITE.search(block):
            assert SAID_SO.search(block), block


@every_note
def test_code_is_device_code_and_says_where_it_needs_a_gpu(note: Note) -> None:
    for code in snippets(note):
        assert check_source(whole(code)) == ()
        for header in re.findall(r"#include <(.+)>", code):
            on_cpu = (INCLUDE / header).exists()
            assert on_cpu or "the `cpu` executor" in note.body


@pytest.mark.parametrize(
    ("note", "around"), [("stall-membar", "HERE"), ("technique-double-buffering", BUFFERS_RUN)]
)
def test_taken_literally_it_passes_every_gate(
    note: str, around: str, tmp_path: Path, kernels: Path
) -> None:
    """A counter of blocks that nobody clears, or one barrier too few, would not. With inputs of one
    seed: one sum in another order is beyond the bound on some that nearly cancel."""
    rewrite = make_rewrite(around.replace("HERE", snippets(NOTES[note])[0]), "test", note, "a note")
    bench = open_workbench(
        load_program(SUM), None, (), CpuExecutor("A10", kernels),
        Policy(min_speedup=0.001, seed=3), tmp_path / "bench", sm_arch="sm_86", timeout_s=120.0,
    )  # fmt: skip
    judgement = evaluate(bench, rewrite, 0.001).judged(bench.policy)
    assert judgement.outcome == "provisional", judgement.reason


@pytest.mark.nvcc
def test_code_that_needs_a_gpu_compiles_for_one(tmp_path: Path) -> None:
    code = snippets(NOTES["technique-double-buffering"])[1]
    declared = code.replace("template", "__device__ void compute(const float4*) {}\ntemplate", 1)
    call = "__global__ void k(const float4* x) { __shared__ float4 s[3][256]; run<3>(x, s, 9); }\n"
    (tmp_path / "note.cu").write_text(declared + call)
    command = [str(find_nvcc()), "-arch=sm_86", "-cubin", "-o", "note.cubin", "note.cu"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
