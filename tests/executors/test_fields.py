"""The numbers in structures: told at capture, read, drawn and judged by field, on memory and on
what is passed by value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Captured
from cudaops.domain.workload import Allocation, OpaqueArgument, Workload
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.fields import (
    draw_fields,
    field_values,
    replaced,
    value_in,
    write_fields,
)
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
    assert [value_in(step, f) for f in step.fields] == [0.5, 1, 7]
    other = replaced(replaced(step.raw_hex, by, 0.1), count, -1)
    assert bytes.fromhex(other)[:16] == (
        np.float32(0.1).tobytes() + bytes.fromhex(step.raw_hex)[4:8] + np.int64(-1).tobytes()
    )
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
        "float x; int low : 3; int high : 5;",
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
