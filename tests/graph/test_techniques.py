"""A model's rewrite states techniques in macros: after it is kept, each is switched off alone. The
whole graph, with a script in the model's place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudaops.domain.judgement import Policy, Technique
from cudaops.domain.run import RunRecord
from cudaops.graph.resolve_options import run_options, target
from cudaops.graph.run import start
from cudaops.memory.store import MemoryStore
from cudaops.program.techniques import MOST, stated_in
from cudaops.reports import markdown
from cudaops.settings import load_settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "naive_matmul.cu"

PLAN = """```json
[{"family": "tiling", "title": "register tiling", "why": "L1 throughput is at its limit",
  "steps": ["64x64 outputs a block"], "expected_speedup": 3.0}]
```"""

REWRITE = """TITLE: register tiling
WHY: sixteen multiply-adds for eight values read from shared memory
```cuda
// @requires N % 64 == 0
// @launch tiled grid=(N/64, N/64) block=(16, 16) args=(A, B, C, N)
#define TECHNIQUE_COALESCED_A 1  // neighbouring threads load neighbouring elements of A
#define TECHNIQUE_STAGED_B 1  // B's tile in shared memory
#define TECHNIQUE_WARP_SHUFFLE 1  // what it does is to fuse the multiply-add
  #define TECHNIQUE_PREFETCH 1  // stated, and written nowhere

__global__ void tiled(const float* A, const float* B, float* C, int N) {
    __shared__ float tile_a[16][68];
    __shared__ float tile_b[16][64];
    const int thread = threadIdx.y * 16 + threadIdx.x;
    const int first_row = blockIdx.y * 64, first_col = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int start = 0; start < N; start += 16) {
        for (int i = thread; i < 64 * 16; i += 256) {
#if TECHNIQUE_COALESCED_A
            tile_a[i % 16][i / 16] = A[(first_row + i / 16) * N + start + i % 16];
#else
            tile_a[i / 64][i % 64] = A[(first_row + i % 64) * N + start + i / 64];
#endif
            tile_b[i / 64][i % 64] = B[(start + i / 64) * N + first_col + i % 64];
        }
        __syncthreads();
        for (int k = 0; k < 16; ++k) {
            float a[4], b[4];
            for (int r = 0; r < 4; ++r) a[r] = tile_a[k][threadIdx.y * 4 + r];
#if TECHNIQUE_STAGED_B
            for (int c = 0; c < 4; ++c) b[c] = tile_b[k][threadIdx.x + 16 * c];
#else
            const float* row = B + (start + k) * N + first_col + threadIdx.x;
            for (int c = 0; c < 4; ++c) b[c] = row[16 * c];
#endif
            for (int r = 0; r < 4; ++r)
#if TECHNIQUE_WARP_SHUFFLE
                for (int c = 0; c < 4; ++c) sum[r][c] += a[r] * b[c];
#else
                for (int c = 0; c < 4; ++c) sum[r][c] = __fadd_rn(sum[r][c], __fmul_rn(a[r], b[c]));
#endif
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; ++r)
        for (int c = 0; c < 4; ++c)
            C[(first_row + threadIdx.y * 4 + r) * N + first_col + threadIdx.x + 16 * c] = sum[r][c];
}
```"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, Path]:
    folder = tmp_path_factory.mktemp("techniques")
    source = folder / "naive_matmul.cu"
    source.write_text(EXAMPLE.read_text("utf-8").replace("N = 1024", "N = 512"), "utf-8")
    answers = [
        {"role": "planner", "text": PLAN},
        {"role": "coder", "when": "TECHNIQUE_", "text": REWRITE},
        {"role": "reflector", "text": "register tiles pay"},
    ]
    script = folder / "script.json"
    script.write_text(json.dumps({"cudaops_script": 1, "answers": answers}), "utf-8")
    options = run_options(
        source, folder / "run", target("A10", None), optimizer="llm",
        model=f"scripted:{script}", max_iterations=1, policy=Policy(min_speedup=1.05),
    )  # fmt: skip
    settings = load_settings().model_copy(update={"memory": str(folder / "memory")})
    return start(options, lambda _: None, settings), folder


@pytest.mark.nvcc
@pytest.mark.timeout(580)
def test_each_technique_has_its_verdict(job: tuple[RunRecord, Path]) -> None:
    record, _ = job
    assert record.outcome == "provisional", record.reason
    (attempt,) = record.attempts
    assert attempt.expected_speedup == 3.0
    coalesced, staged, shuffle, prefetch = attempt.techniques
    assert (coalesced.name, coalesced.verdict) == ("coalesced_a", "effective")
    assert coalesced.factor is not None
    assert coalesced.factor > 1.02
    assert (staged.name, staged.verdict) == ("staged_b", "ineffective")
    assert staged.says == "B's tile in shared memory"
    assert staged.factor == pytest.approx(1.0, abs=0.02)
    assert (prefetch.name, prefetch.verdict, prefetch.factor) == ("prefetch", "absent", None)
    assert (shuffle.name, shuffle.verdict) == ("warp_shuffle", "absent")
    assert shuffle.factor is not None, "it was timed, and holds no shuffle whatever it brings"
    assert shuffle.line.endswith("(shuffles in SASS: author 0, rewrite 0, without it 0)")
    assert coalesced.signature is None, "no instruction is known by `coalesced`"
    assert staged.signature is not None
    assert staged.signature.name == "shared-memory accesses"
    assert staged.signature.author == 0
    assert staged.signature.rewrite > (staged.signature.without or 0) > 0, "A's tile stays there"


def test_reports_and_memory_say_it(job: tuple[RunRecord, Path]) -> None:
    record, folder = job
    assert "disabled one at a time: coalesced_a: effective, " in markdown.run_report(
        record
    ).replace("\\", "")
    (kernel,) = MemoryStore(folder / "memory").kernels()
    (entry,) = kernel.entries
    assert entry.lesson.startswith("techniques: coalesced_a: effective, ")
    assert "staged_b: ineffective" in entry.lesson


def test_stated_techniques_and_their_text_without() -> None:
    one, two = stated_in(
        "#define TECHNIQUE_A 1 // first\n # define TECHNIQUE_B_2 1\n#define TECHNIQUE_C 0\n"
        "#define OTHER 1\n#define TECHNIQUE_D 16\n"
    )
    assert (one.name, one.says, two.name, two.says) == ("a", "first", "b_2", "")
    assert one.without.splitlines()[:2] == [
        "#define TECHNIQUE_A 0 // first", " # define TECHNIQUE_B_2 1",
    ]  # fmt: skip
    assert two.without.splitlines()[1] == " # define TECHNIQUE_B_2 0"
    assert len(stated_in("".join(f"#define TECHNIQUE_{n} 1\n" for n in range(9)))) == MOST
    assert stated_in("") == ()


def test_a_technique_in_one_line() -> None:
    assert Technique(name="a", verdict="effective", factor=1.318).line == "a: effective, 1.32x"
    broken = Technique(name="b", verdict="not_separable", detail="k.cu:3: no such name")
    assert broken.line == "b: not separable (k.cu:3: no such name)"
