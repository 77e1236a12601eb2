"""Instructions of real cubins, counted by class: nvcc builds them, nvdisasm shows them."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from cudaops.domain.instructions import InstructionChange, KernelInstructions
from cudaops.domain.judgement import Policy
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.build import IMAGE, GpuBuilder
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.executors.cuda.ncu import find_nvdisasm
from cudaops.executors.cuda.sass import OTHER, class_of, counted, instructions_of
from cudaops.graph.record import instruction_change
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.workbench import open_workbench
from tests.executors.cases import VECTOR_MAIN, program
from tests.executors.cuda.gpu_builds import built, unit_of
from tests.standin.platform import STANDIN

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(find_nvdisasm() is None, reason="nvdisasm is not installed"),
]

KERNEL = """
__global__ void mixed(const float* a, float* b, double* d, int* h, int n) {
  __shared__ float s[128];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x] = a[i];
  __syncthreads();
  b[i] = __sinf(s[threadIdx.x ^ 1]);
  d[i] = d[i] * 2.5;
  if (b[i] > 0) atomicAdd(h, n);  // read again: d may have overwritten it
}
"""
REWRITE = """
// @launch wide grid=(1) block=(32) args=(a, b)
// @launch wide grid=(2) block=(32) args=(a, b)
// @launch spills grid=(1) block=(32) args=(a, b, n)
__global__ void wide(const float* a, float* b) {
  reinterpret_cast<float4*>(b)[threadIdx.x] = reinterpret_cast<const float4*>(a)[threadIdx.x];
}
__global__ void spills(const float* a, float* b, int n) {
  float kept[64];
  for (int i = 0; i < 64; ++i) kept[(i * n) & 63] = a[i] * i;
  b[threadIdx.x] = kept[n & 63];
}
"""


def counts_of(folder: Path, rewrite: str | None) -> tuple[KernelInstructions, ...]:
    module = built(GpuBuilder(folder, "sm_86").unit(unit_of(KERNEL, "mixed", rewrite), draft=False))
    own = [
        (one, taken)
        for one, taken in zip(module.launchables, module.resources, strict=True)
        if (one.entry != BASELINE_ENTRY) == (rewrite is not None)
    ]
    found = instructions_of(module.folder / IMAGE, [o for o, _ in own], [t for _, t in own])
    assert not isinstance(found, str), found
    return found


def test_an_authors_kernel(tmp_path: Path) -> None:
    (mixed,) = counts_of(tmp_path, None)
    assert (mixed.kernel, mixed.sm_arch, mixed.spilled_bytes) == ("mixed", "sm_86", 0)
    assert mixed.registers > 0
    wanted = {
        "global loads, 32 bit": 2, "global loads, 64 bit": 1, "global stores, 32 bit": 1,
        "global stores, 64 bit": 1, "shared loads, 32 bit": 1, "shared stores, 32 bit": 1,
        "MUFU": 1, "FP64": 1, "barriers": 1, "atomics": 1,
    }  # fmt: skip
    assert {name: mixed.counts.get(name) for name in wanted} == wanted
    assert mixed.counts["integer"] > 0
    assert mixed.counts["branches"] >= 1
    assert OTHER not in mixed.counts
    assert not [name for name in mixed.counts if name.startswith("local")]


def test_every_kernel_of_a_plan_once_wide_loads_and_local_memory(tmp_path: Path) -> None:
    wide, spills = counts_of(tmp_path, REWRITE)
    assert (wide.kernel, spills.kernel) == ("wide", "spills")
    assert wide.counts["global loads, 128 bit"] == wide.counts["global stores, 128 bit"] == 1
    assert "global loads, 32 bit" not in wide.counts
    assert sum(n for name, n in spills.counts.items() if name.startswith("local stores")) > 0
    assert OTHER not in spills.counts


SCALE = "__global__ void scale(const float* a, float* b, int n) {{\n{}\n}}\n"
PLAIN = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) b[i] = 2 * a[i];"


def test_a_run_keeps_what_changed_or_why_it_is_not_known(tmp_path: Path, kernels: Path) -> None:
    parsed = program(
        tmp_path / "p",
        SCALE.format(PLAIN),
        VECTOR_MAIN.replace("LAUNCH", "scale<<<4, 256>>>(a, b, n)"),
    )
    rewrite = make_rewrite(
        "// @launch wide grid=(1) block=(256) args=(a, b)\n"
        "__global__ void wide(const float* a, float* b) {\n"
        "  float4 x = reinterpret_cast<const float4*>(a)[threadIdx.x % 250];\n"
        "  reinterpret_cast<float4*>(b)[threadIdx.x % 250] = "
        "make_float4(2 * x.x, 2 * x.y, 2 * x.z, 2 * x.w);\n}\n",
        "user", "t", "w",
    )  # fmt: skip
    incumbent = {"rewrite": rewrite.model_dump(mode="json")}
    with closing(CudaExecutor(None, kernels, driver=STANDIN, sm_arch="sm_86")) as gpu:
        bench = open_workbench(
            parsed, None, (), gpu, Policy(seed=3), tmp_path / "b", sm_arch="sm_86", timeout_s=60.0
        )
        change = instruction_change(bench, incumbent)
        assert instruction_change(bench, None) is None
    assert change is not None
    assert [one.kernel for one in (*change.author, *change.best)] == ["scale", "wide"]
    assert change.author[0].counts["global loads, 32 bit"] == 1
    assert change.best[0].counts["global loads, 128 bit"] == 1
    on_cpu = open_workbench(
        parsed, None, (), CpuExecutor("A10", kernels), Policy(seed=3), tmp_path / "c",
        sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip
    assert instruction_change(on_cpu, incumbent) is None


def test_what_fills_a_kernel_up_is_not_counted() -> None:
    listing = """
\t.section\t.text.k,"ax",@progbits
.text.k:
        /*0000*/              @!PT LDS.U.128 R4, [R2] ;
        /*0010*/               @P0 BRA `(.L_x_1) ;
.L_x_0:
        /*0020*/                   IADD3 R1, R1, 0x1, RZ ;
        /*0030*/              @!P1 BRA `(.L_x_0) ;
.L_x_1:
        /*0040*/                   EXIT ;
.L_x_2:
        /*0050*/                   BRA `(.L_x_2);
        /*0060*/                   NOP;
\t.section\t.text.other,"ax",@progbits
        /*0000*/              @UP0 UMADEUP UR4, UR4 ;
"""
    assert counted(listing) == {
        "k": {"shared loads, 128 bit": 1, "branches": 3, "integer": 1},
        "other": {OTHER: 1},
    }


@pytest.mark.parametrize(
    ("opcode", "name"),
    [
        ("LDG.E.U8.CONSTANT", "global loads, 8 bit"),
        ("LDG.E.LTC128B", "global loads, 32 bit"),
        ("STG.E.64", "global stores, 64 bit"),
        ("LDL.LU.128", "local loads, 128 bit"),
        ("STS.S16", "shared stores, 16 bit"),
        ("LDSM.16.M88.4", "matrix loads from shared"),
        ("LDGSTS.E.BYPASS.128", "copies from global to shared"),
        ("IMAD.MOV.U32", "moves and selects"),
        ("IMAD.WIDE", "integer"),
        ("RED.E.ADD.STRONG.GPU", "atomics"),
        ("ATOMS.ADD", "shared atomics"),
        ("HMMA.16816.F32", "tensor"),
        ("MUFU.RCP64H", "MUFU"),
        ("SHFL.DOWN", "between lanes"),
        ("NOSUCH", OTHER),
    ],
)
def test_class(opcode: str, name: str) -> None:
    assert class_of(opcode) == name


def test_what_cannot_be_read_is_missing_and_never_none_of_it(tmp_path: Path) -> None:
    module = built(GpuBuilder(tmp_path, "sm_86").unit(unit_of(KERNEL, "mixed"), draft=False))
    broken = tmp_path / "broken.cubin"
    broken.write_bytes(b"no cubin")
    said = instructions_of(broken, module.launchables, module.resources)
    assert isinstance(said, str)
    assert said.startswith("nvdisasm refuses the cubin")
    unknown = [one.model_copy(update={"symbol": "_Z4gonev"}) for one in module.launchables]
    said = instructions_of(module.folder / IMAGE, unknown, module.resources)
    assert said == "nvdisasm shows no instruction of mixed"


def test_without_nvdisasm_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = built(GpuBuilder(tmp_path, "sm_86").unit(unit_of(KERNEL, "mixed"), draft=False))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [])
    for name in [n for n in sys.modules if n == "nvidia" or n.startswith("nvidia.")]:
        monkeypatch.delitem(sys.modules, name)
    sys.path_importer_cache.clear()
    said = instructions_of(module.folder / IMAGE, module.launchables, module.resources)
    assert isinstance(said, str)
    assert said.startswith("nvdisasm is not here")
    assert InstructionChange(missing=said).rows() == []


def test_rows_stand_side_by_side() -> None:
    def one(registers: int, **counts: int) -> KernelInstructions:
        return KernelInstructions(
            kernel="k", sm_arch="sm_86", registers=registers, spilled_bytes=0, counts=counts
        )

    change = InstructionChange(author=(one(32, a=3, b=1),), best=(one(40, a=1), one(24, a=1, c=5)))
    assert change.rows() == [
        ("instructions", "4", "7"), ("a", "3", "2"), ("b", "1", "0"), ("c", "0", "5"),
        ("registers a thread", "32", "40, 24"), ("bytes spilled a thread", "0", "0, 0"),
    ]  # fmt: skip
