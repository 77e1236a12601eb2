"""The numbers in structures: told at capture, read, drawn and judged by field, on memory and on
what is passed by value."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Captured
from cudaops.domain.judgement import Judgement, Policy
from cudaops.domain.workload import Allocation, OpaqueArgument, Workload
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.fields import (
    draw_fields,
    field_values,
    replaced,
    widened_argument,
    write_fields,
)
from cudaops.gates.evaluate import evaluate
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.inputs import CaseDraw, build_case
from cudaops.sandbox.workbench import Workbench, open_workbench
from tests.executors.cases import program
from tests.executors.cuda.gpu_programs import StandInPrograms, on_gpu

PARTICLES = """
enum Kind { light, heavy };
struct Point { double at; float weight[2]; };
struct Particle { float3 pos; char tag; float4 turn; Point points[2]; Kind kind; };
struct Step { float by; bool twice; long count; float* log; };
template <class T> struct Span { T* data; int size; };
__global__ void advance(Span<Particle> all, Step step) {
    int i = threadIdx.x;
    if (i >= all.size) return;
    all.data[i].pos.y += step.by * (step.twice ? 2.0f : 1.0f);
    all.data[i].points[1].weight[0] *= 2.0f;
    step.log[i] = all.data[i].pos.y;
}
"""
MAIN = """
  const int n = 50;
  static Particle host[n];
  for (int i = 0; i < n; ++i) host[i].pos.y = 0.5f * i, host[i].points[1].weight[0] = -i,
    host[i].kind = i % 2 ? heavy : light, host[i].points[0].at = 0.1 * i;
  Span<Particle> all; Step step{0.5f, true, 7, nullptr};
  all.size = n;
  cudaMalloc(&all.data, sizeof(host) + 3);
  cudaMalloc(&step.log, n * sizeof(float));
  cudaMemcpy(all.data, host, sizeof(host), cudaMemcpyHostToDevice);
  advance<<<1, 64>>>(all, step);
"""
FIELDS = [
    ("pos.x", "f32", 0, 0), ("pos.y", "f32", 4, 8), ("pos.z", "f32", 8, 16),
    ("tag", "i8", 12, 24),
    ("turn.x", "f32", 16, 32), ("turn.y", "f32", 20, 40), ("turn.z", "f32", 24, 48),
    ("turn.w", "f32", 28, 56),
    ("points[0].at", "f64", 32, 64), ("points[0].weight[0]", "f32", 40, 80),
    ("points[0].weight[1]", "f32", 44, 88),
    ("points[1].at", "f64", 48, 96), ("points[1].weight[0]", "f32", 56, 112),
    ("points[1].weight[1]", "f32", 60, 120),
    ("kind", "u32", 64, 128),
]  # fmt: skip


def captured(outcome: object) -> Workload:
    assert isinstance(outcome, Captured)
    (workload,) = outcome.workloads
    return workload


@pytest.fixture(scope="module")
def workload(cpu_executor: CpuExecutor, tmp_path_factory: pytest.TempPathFactory) -> Workload:
    folder = tmp_path_factory.mktemp("particles")
    parsed = program(folder, PARTICLES, MAIN)
    return captured(cpu_executor.capture(parsed, None, (), folder / "c", 60.0))


def told(allocation: Allocation) -> list[tuple[str, str, int, int | None]]:
    return [(f.path, f.element, f.at_bytes, f.wide_at_bytes) for f in allocation.fields]


def test_clang_tells_the_fields_of_a_buffer(workload: Workload) -> None:
    particles, log = workload.allocations
    assert particles.element == "opaque"
    assert told(particles) == FIELDS
    assert (particles.structure_bytes, particles.wide_structure_bytes) == (80, 144)
    assert (log.element, log.fields, log.structure_bytes) == ("f32", (), None)
    assert Workload.model_validate_json(workload.model_dump_json()) == workload
    old = particles.model_dump(exclude={"fields", "structure_bytes", "wide_structure_bytes"})
    assert Allocation.model_validate(old).fields == ()


def test_the_gpu_recorder_tells_the_same(
    workload: Workload, cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    platform = StandInPrograms(cpu_executor.cache)
    parsed = program(tmp_path, PARTICLES, MAIN)
    seen = captured(on_gpu(platform, parsed).capture(None, tmp_path / "c"))
    assert [a.fields for a in seen.allocations] == [a.fields for a in workload.allocations]


def test_numbers_of_a_structure_by_value(workload: Workload) -> None:
    step = workload.argument("step")
    assert isinstance(step, OpaqueArgument)
    by, twice, count = step.fields
    assert [(f.path, f.element, f.at_bytes) for f in step.fields] == [
        ("by", "f32", 0), ("twice", "bool", 4), ("count", "i64", 8),
    ]  # fmt: skip
    raw = bytes.fromhex(step.raw_hex)
    assert [f.value(raw) for f in step.fields] == [0.5, 1, 7]
    other = replaced(replaced(step.raw_hex, by, 0.1), count, -1)
    assert bytes.fromhex(other)[:16] == (
        np.float32(0.1).tobytes() + bytes.fromhex(step.raw_hex)[4:8] + np.int64(-1).tobytes()
    )
    wide = widened_argument(step)
    assert isinstance(wide, OpaqueArgument)
    assert bytes.fromhex(wide.raw_hex) == struct.pack("<d?7xqq", 0.5, True, 7, 0)
    assert [(p.path, p.at_bytes) for p in wide.pointers] == [("step.log", 24)]
    assert [p.at_bytes for p in step.pointers] == [16]
    with pytest.raises(OverflowError, match="twice cannot be 256"):
        replaced(step.raw_hex, twice, 256)


def test_fields_are_read_and_written_beside_what_is_kept(
    workload: Workload, tmp_path: Path
) -> None:
    particles = workload.allocations[0]
    source, path = Path(workload.folder) / particles.before, tmp_path / "drawn.bin"
    fields = {f.path: f for f in particles.fields}
    assert field_values(source, particles, fields["pos.y"]).tolist() == [0.5 * i for i in range(50)]
    assert field_values(source, particles, fields["kind"]).tolist() == [i % 2 for i in range(50)]
    write_fields(path, source, particles, {"pos.y": np.full(50, 0.1)})
    before, after = (np.fromfile(p, np.uint8) for p in (source, path))
    (changed,) = np.nonzero(before != after)
    assert changed.size > 0
    assert after.size == particles.size_bytes == 50 * 80 + 3
    assert set(changed % 80) <= {4, 5, 6, 7}
    assert field_values(path, particles, fields["pos.y"]).tolist() == [np.float32(0.1)] * 50

    draw_fields(path, source, particles, lambda f, v: v + 1 if f.path == "points[0].at" else None)
    assert np.allclose(
        field_values(path, particles, fields["points[0].at"]), 0.1 * np.arange(50) + 1
    )


@pytest.mark.parametrize(
    "members",
    [
        "float x; union { int i; float f; } either;",
        "float x; int n; const char* name;",
        "float x; int n; virtual int size() { return n; }",
        "float x; long double far;",
    ],
)
def test_what_is_no_number_keeps_a_structure_opaque(
    members: str, cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    kernels = f"struct Thing {{ {members} }};\n"
    kernels += "__global__ void move(Thing* t) { t[threadIdx.x].x += 1.0f; }\n"
    main = "Thing* t; cudaMalloc(&t, 32 * sizeof(Thing)); cudaMemset(t, 0, 32 * sizeof(Thing));"
    parsed = program(tmp_path, kernels, f"{main} move<<<1, 32>>>(t);")
    (things,) = captured(cpu_executor.capture(parsed, None, (), tmp_path / "c", 30.0)).allocations
    assert (things.element, things.fields, things.structure_bytes) == ("opaque", (), None)


FLAGS = """
enum class Kind : unsigned { none, tree = 5 };
struct Flags { float x; unsigned low : 3; int high : 6; unsigned : 0; bool on : 1; Kind kind : 4; };
__global__ void turn(Flags* f) { f[threadIdx.x].high += f[threadIdx.x].low; }
"""


def test_a_bit_field_is_a_number_of_its_own(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    main = "Flags* f; cudaMalloc(&f, 32 * sizeof(Flags)); cudaMemset(f, 0, 32 * sizeof(Flags));"
    parsed = program(tmp_path, FLAGS, f"{main} turn<<<1, 32>>>(f);")
    workload = captured(cpu_executor.capture(parsed, None, (), tmp_path / "c", 30.0))
    (flags,) = workload.allocations
    places = {f.path: (f.element, f.at_bytes, f.bits) for f in flags.fields}
    assert places == {
        "x": ("f32", 0, None), "low": ("u32", 4, (0, 3)), "high": ("i32", 4, (3, 6)),
        "on": ("u8", 8, (0, 1)), "kind": ("u32", 8, (1, 4)),
    }  # fmt: skip
    assert flags.wide_structure_bytes is None
    source, path = Path(workload.folder) / flags.before, tmp_path / "drawn.bin"
    np.full(flags.size_bytes // 4, 0xFFFFFFFF, "<u4").tofile(source)
    assert set(field_values(source, flags, flags.fields[2]).tolist()) == {-1}
    assert set(field_values(source, flags, flags.fields[4]).tolist()) == {15}
    write_fields(path, source, flags, {"high": np.full(32, -32), "on": np.full(32, 2)})
    assert set(field_values(path, flags, flags.fields[2]).tolist()) == {-32}
    assert set(np.fromfile(path, "<u4").reshape(32, 3)[:, 1].tolist()) == {0xFFFFFF07}
    assert set(np.fromfile(path, "<u4").reshape(32, 3)[:, 2].tolist()) == {0xFFFFFFFE}


def test_a_drawn_set_varies_floating_fields_and_keeps_the_others(
    workload: Workload, tmp_path: Path
) -> None:
    particles = workload.allocations[0]
    drawn = build_case(workload, CaseDraw("signed", 3), tmp_path, 0x3C).contents[0]
    before = Path(workload.folder) / particles.before
    for field in particles.fields:
        old, new = (field_values(path, particles, field) for path in (before, drawn))
        assert (field.element in ("f32", "f64")) == bool((old != new).all()), field.path
    same = np.fromfile(drawn, np.uint8)[-3:] == np.fromfile(before, np.uint8)[-3:]
    assert same.all()


BOUNCE = """
struct Ball { double mass; float x, v; char kind; };
struct Step { float dt; const double* drag; int n; };
__global__ void bounce(Ball* b, Step s) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= s.n) return;
    float drag = s.drag[b[i].kind];
    b[i].v -= drag * b[i].v * b[i].v * b[i].v * s.dt;
    b[i].x += b[i].v * s.dt;
    if (b[i].x < 0.0f) b[i].x = -b[i].x;
    b[i].mass *= 1.0000001;
}
"""
BOUNCE_MAIN = """
  const int n = 512;
  static Ball host[n];
  for (int i = 0; i < n; ++i) host[i] = {1 + 0.01 * i, 5.0f + i % 7, 0.3f * (i % 5), char(i % 2)};
  double drag[2] = {0.1, 0.4}; double* d; Ball* b;
  cudaMalloc(&d, sizeof drag); cudaMemcpy(d, drag, sizeof drag, cudaMemcpyHostToDevice);
  cudaMalloc(&b, sizeof host); cudaMemcpy(b, host, sizeof host, cudaMemcpyHostToDevice);
  bounce<<<n / 128, 128>>>(b, Step{0.01f, d, n});
  cudaMemcpy(host, b, sizeof host, cudaMemcpyDeviceToHost);
  double sum = 0; for (auto& one : host) sum += one.x * one.mass;
  printf("%f\\n", sum);
"""
FUSED = """
// @launch fast grid=(gridDim.x) block=(blockDim.x) args=(b, s)
__global__ void fast(Ball* b, Step s) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= s.n) return;
    Ball ball = b[i];
    float drag = s.drag[ball.kind];
    ball.v = fmaf(-(drag * s.dt) * ball.v * ball.v, ball.v, ball.v);
    ball.x = fmaf(ball.v, s.dt, ball.x);
    if (ball.x < 0.0f) ball.x = -ball.x;
    ball.mass *= 1.0000001;
    b[i] = ball;
    for (int k = 17; k < sizeof(Ball); ++k) ((char*)&b[i])[k] = 1;
}
"""
ANY_SPEED = Policy(min_speedup=0.001, seed=11)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, cpu_executor: CpuExecutor) -> Workbench:
    folder = tmp_path_factory.mktemp("bounce")
    parsed = program(folder, BOUNCE, BOUNCE_MAIN)
    return open_workbench(
        load_program(folder / parsed.main_path), None, (), cpu_executor, ANY_SPEED, folder / "b",
        sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip


def judged(bench: Workbench, old: str = "", new: str = "") -> Judgement:
    assert old in FUSED
    rewrite = make_rewrite(FUSED.replace(old, new) if old else FUSED, "test", "test", "test")
    return evaluate(bench, rewrite, ANY_SPEED.min_speedup).judged(ANY_SPEED)


def test_a_rewrite_may_round_otherwise_and_leave_anything_in_the_padding(bench: Workbench) -> None:
    judgement = judged(bench)
    assert judgement.outcome in ("accepted", "provisional"), judgement.reason
    captured = bench.oracle(bench.workloads[0]).captured
    assert captured.wide_problem is None
    assert captured.wide_outputs is not None


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("if (ball.x < 0.0f) ball.x = -ball.x;", "", "b.x"),
        ("ball.v = fmaf(", "ball.v = 1.0001f * fmaf(", "b.v"),
        ("ball.mass *= 1.0000001;", "ball.mass = float(ball.mass);", "b.mass"),
        ("b[i] = ball;", "ball.kind ^= ball.x == 5.0f; b[i] = ball;", "b.kind"),
    ],
)
def test_what_shows_in_one_field_is_refused_by_its_name(
    bench: Workbench, old: str, new: str, field: str
) -> None:
    judgement = judged(bench, old, new)
    assert judgement.outcome == "rejected"
    assert f"{field}:" in judgement.reason
