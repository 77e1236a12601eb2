"""Members of CUDA's vector types: nvcc moves neighbours with one instruction, as the model does."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.domain.profile import Profile
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.timemodel.gimple import parse, vector_members
from tests.executors.cpu.profile_cases import made_case, profiled

BLOCKS = 64
WARPS = BLOCKS * 256 // 32

WHOLE = "d[i] = make_float4(a[i], 1.0f, 2.0f, 0.0f);"
WRITES = {
    "braces": "d[i] = {a[i], 1.0f, 2.0f, 0.0f};",
    "temporary": "d[i] = float4{a[i], 1.0f, 2.0f, 0.0f};",
    "members": "d[i].x = a[i];\n d[i].y = 1.0f;\n d[i].z = 2.0f;\n d[i].w = 0.0f;",
}


def modelled(executor: CpuExecutor, folder: Path, body: str, before: str = "") -> Profile:
    kernel = f"""
        {before}
        __global__ void k(const float* a, float* b) {{
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          {body}
        }}
    """
    floats = 8 * BLOCKS * 256
    return profiled(
        executor, made_case(folder, kernel, (BLOCKS,), (256,), floats, {}, None, ("a", "b"))
    )


@pytest.mark.parametrize("written", WRITES.values(), ids=WRITES)
def test_a_vector_written_by_its_members_is_one_store(
    executor: CpuExecutor, tmp_path: Path, written: str
) -> None:
    begin = "float4* d = (float4*)b; "
    (tmp_path / "whole").mkdir()
    whole = modelled(executor, tmp_path / "whole", begin + WHOLE)
    found = modelled(executor, tmp_path, begin + written)
    for metric in (ncu.GLOBAL_ST_INST, ncu.GLOBAL_ST_SECTORS, ncu.BYTES_PER_SECTOR_ST):
        assert found.get(metric) == pytest.approx(whole.get(metric))
    assert found.get(ncu.GLOBAL_ST_INST) == WARPS
    assert found.duration_us == pytest.approx(whole.duration_us, rel=0.25)


def test_members_that_are_read_apart_are_one_load(executor: CpuExecutor, tmp_path: Path) -> None:
    body = """const float4* p = (const float4*)a;
      float x = p[i].x;
      float y = p[i].y;
      b[i] = x * y + p[i].z * p[i].w;"""
    found = modelled(executor, tmp_path, body)
    assert found.get(ncu.GLOBAL_LD_INST) == pytest.approx(WARPS)
    assert found.get(ncu.GLOBAL_LD_SECTORS) == pytest.approx(16 * WARPS)
    assert found.get(ncu.BYTES_PER_SECTOR_LD) == pytest.approx(32)
    assert found.get(ncu.GLOBAL_LD_HIT_RATE) == pytest.approx(0, abs=1)


def test_neighbouring_lanes_of_pairs_stand_in_one_word_of_sixteen_bytes(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    body = """const float2* p = (const float2*)a; float2* d = (float2*)b;
      d[i] = {p[i].x - p[i].y, 1.0f};"""
    found = modelled(executor, tmp_path, body)
    assert found.get(ncu.GLOBAL_LD_INST) == pytest.approx(WARPS)
    assert found.get(ncu.GLOBAL_ST_INST) == pytest.approx(WARPS)
    assert found.get(ncu.GLOBAL_ST_SECTORS) == pytest.approx(8 * WARPS)
    assert found.get(ncu.BYTES_PER_SECTOR_ST) == pytest.approx(32)


MINE = "struct Mine { float x, y, z, w; };"
APART = {
    "of an unaligned type": (MINE, "Mine* d = (Mine*)b; d[i] = {a[i], 1.0f, 2.0f, 0.0f};", 4),
    "of a plain array": ("", "b[4 * i] = a[i]; b[4 * i + 1] = 1.0f;", 2),
    "of three": ("", "float3* d = (float3*)b; d[i] = {a[i], 1.0f, 2.0f};", 3),
    "of which one is left out": ("", "float4* d = (float4*)b; d[i].x = a[i]; d[i].z = 1.0f;", 2),
    "of which some lanes take part": (
        "", "float4* d = (float4*)b; d[i].x = a[i]; if (i % 2) d[i].y = 1.0f;", 2
    ),
    "of different words": ("", "float4* d = (float4*)b; d[i].x = a[i]; d[i + 1].y = 1.0f;", 2),
}  # fmt: skip


@pytest.mark.parametrize(("before", "body", "stores"), APART.values(), ids=APART)
def test_members_that_stay_apart(
    executor: CpuExecutor, tmp_path: Path, before: str, body: str, stores: int
) -> None:
    found = modelled(executor, tmp_path, body, before)
    assert found.get(ncu.GLOBAL_ST_INST) == pytest.approx(stores * WARPS)


DUMP = """
;; Function k (_Z1kP6float4, funcdef_no=1, decl_uid=1, cgraph_uid=1, symbol_order=1)

void k (struct float4 * d, const struct double2 * restrict e)
{
  struct float4 * _4;
  struct Mine * _5;
  float _6;

  <bb 2> [count: 10]:
  [a/k.cu:1:5] _4->x = _6;
  [a/k.cu:2:5] _6 = [a/k.cu:2:5] [a/k.cu:2:3] *_4.w;
  [a/k.cu:3:5] _5->x = _6;
  [a/k.cu:4:5] _7 = e_8(D)->y;
  [a/k.cu:5:5] *_4 = v;
  [a/k.cu:6:5] _6 = MEM[(const struct float2 &)_9].y;
  [a/k.cu:7:5] _6 = MEM[(struct Mine *)_9].y;
  [a/k.cu:8:5] _6 = v.x;
  return;

}
"""


def test_lines_are_found_by_the_type_of_the_pointer() -> None:
    assert vector_members(parse(DUMP)) == {("k.cu", n) for n in (1, 2, 4, 6)}
