"""An example of all that a package can add to cudaops (docs/plugins.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from cudaops.cuda.architectures import SM_89
from cudaops.cuda.devices import Device
from cudaops.cuda.rule import Condition, Rule
from cudaops.domain.hypothesis import Family
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.program.plans import make_rewrite

EX40 = Device(
    **asdict(SM_89),
    name="EX40",
    full_name="NVIDIA Example EX40",
    sm_count=40,
    sm_clock_mhz=2000.0,
    sm_clock_kind="boost",
    memory_gb=16.0,
    dram_bandwidth_gb_s=288.0,
    l2_bytes=32 << 20,
    source="tests/data/plugin: it does not exist",
)

TINY = Rule(
    id="example_small_blocks",
    subtype="occupancy_block_size",
    priority=-1,
    severity="warning",
    conditions=(Condition("launch__block_size", "<=", 4096.0, "chosen: every launch"),),
    text="the example's rule saw blocks of {0}",
)


def no_atomics(program: Program, rewrite: Rewrite) -> str | None:
    """A house rule: results must not depend on the order of atomics."""
    return "it uses atomics" if "atomicAdd" in rewrite.source else None


class Copies:
    """The author's vector addition, two elements a thread."""

    name = "example_pairs"
    title = "two elements a thread"
    family: Family = "unrolling"
    relieves = frozenset({"occupancy_block_size"})

    def propose(
        self,
        program: Program,
        kernel: Kernel,
        workloads: Sequence[Workload],
        verdict: Verdict | None,
    ) -> tuple[Rewrite, ...]:
        if [one.name for one in kernel.parameters] != ["x", "y", "z", "n"]:
            return ()
        text = (
            "// @launch pairs grid=(ceil_div(n, 512)) block=(256) args=(x, y, z, n)\n"
            "__global__ void pairs(const float* x, const float* y, float* z, size_t n) {\n"
            "    for (int k = 0; k < 2; ++k) {\n"
            "        size_t i = (blockIdx.x * (size_t)2 + k) * 256 + threadIdx.x;\n"
            "        if (i < n) z[i] = x[i] + y[i];\n"
            "    }\n"
            "}\n"
        )
        return (make_rewrite(text, f"recipe:{self.name}", self.title, "an example"),)

    def seeds(self, rewrite: Rewrite) -> tuple[Mapping[str, int], ...]:
        return ({},)

    def refusal(self, rewrite: Rewrite) -> str | None:
        return None


COPIES = Copies()


def stencils(program: Program, kernel: Kernel) -> str | None:
    """What the house knows of one shape."""
    return "Additions of vectors are bound by DRAM." if "x[i] + y[i]" in kernel.text else None
