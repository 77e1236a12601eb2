"""Matrix products: shared-memory and register tiling with tile sizes for the tuner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudaops.domain.hypothesis import Family
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.matmul_form import MatmulForm, recognise
from cudaops.recipes.matmul_source import ELEMENT_BYTES, matmul_source
from cudaops.recipes.matmul_tiles import recognise_tiled
from cudaops.recipes.reading.kernel import Reading, read_kernel
from cudaops.recipes.spelling import written

_STATIC_SHARED_BYTES = 48 * 1024
"""Static shared memory of a block. Source: CUDA C++ Programming Guide, technical specifications."""
_REGISTERS = 64 * 1024
"""32-bit registers of an SM, and most of one block. Source: the same table."""
_OTHER_REGISTERS = {4: 40, 8: 60}
"""By bytes of an element: addresses, sizes and loop state beside the tiles. Measured: nvcc 13.0.88,
`-O3 -arch=sm_86 -Xptxas -v`, all tiles of 64 threads or more that are not refused: 63 to 254
registers where this estimate says 72 to 240, and not one spills (2026-11-20)."""
_LEAST_THREADS = 64
"""One warp hides no latency between barriers; its tiles were also the only ones that spilled."""

_SEEDS = (
    (64, 64, 16, 4, 4), (64, 64, 16, 8, 4), (128, 64, 16, 8, 4), (32, 64, 16, 4, 4),
    (64, 64, 32, 4, 4), (32, 32, 32, 4, 4), (128, 128, 8, 8, 8),
)  # fmt: skip
"""The first is the fastest of the measured ones at 1024 on an H200 (docs/recipes.md); 128x128 comes
last because there its grid is too small."""
NAMES = ("CUDAOPS_BM", "CUDAOPS_BN", "CUDAOPS_BK", "CUDAOPS_TM", "CUDAOPS_TN")


class MatmulRecipe:
    """C = value(sum of A * B) for operands stored either way, of any size."""

    name = "matmul"
    title = "shared-memory and register tiling"
    family: Family = "tiling"
    relieves = frozenset({
        "l1_load_throughput", "l2_bandwidth", "dram_bandwidth", "uncoalesced_access",
        "shared_throughput", "stall_long_scoreboard", "stall_lg_throttle", "stall_mio_throttle",
        "stall_short_scoreboard", "stall_barrier", "low_parallelism", "issue_slots",
        "integer_pipe", "shared_bank_conflicts",
    })  # fmt: skip

    def propose(
        self,
        program: Program,
        kernel: Kernel,
        workloads: Sequence[Workload],
        verdict: Verdict | None,
    ) -> tuple[Rewrite, ...]:
        """One Rewrite with five tune names, or none."""
        try:
            reading = read_kernel(program, kernel, workloads)
            form = product_of(reading)
            source = matmul_source(program, kernel, reading, form)
            return (written(source, self.name, self.title, _why(form, verdict)),)
        except NotUnderstood:
            return ()

    def seeds(self, rewrite: Rewrite) -> tuple[Mapping[str, int], ...]:
        """Tiles that were measured to be good, best first."""
        return tuple(dict(zip(NAMES, values, strict=True)) for values in _SEEDS)

    def refusal(self, rewrite: Rewrite) -> str | None:
        """Tiles that do not divide, do not fit or would spill."""
        values = rewrite.values()
        element = _element(rewrite.source)
        BM, BN, BK, TM, TN = (values[name] for name in NAMES)
        return tile_refusal(BM, BN, BK, TM, TN, element)


def product_of(reading: Reading) -> MatmulForm:
    """The product a kernel computes, plainly or through tiles. Raises NotUnderstood."""
    if reading.effects.shared:
        return recognise_tiled(reading)
    return recognise(reading)


def tile_refusal(BM: int, BN: int, BK: int, TM: int, TN: int, element: str) -> str | None:
    """Why a tile cannot work for elements of this type; None where it may."""
    size = ELEMENT_BYTES[element]
    lanes = 16 // size
    if BM % TM or BN % TN or TM % lanes or TN % lanes or BK % (2 * lanes):
        return f"a thread's {TM}x{TN} does not divide a tile of {BM}x{BN}x{BK}"
    threads = (BM // TM) * (BN // TN)
    if not _LEAST_THREADS <= threads <= 1024:
        return f"{threads} threads a block"
    if (BM * BK) % (lanes * threads) or (BN * BK) % (lanes * threads):
        return f"{threads} threads do not share out the loads of a {BM}x{BN}x{BK} tile"
    shared = 2 * BK * (BM + BN + 2 * lanes) * size
    if shared > _STATIC_SHARED_BYTES:
        return f"{shared} bytes of shared memory, over {_STATIC_SHARED_BYTES}"
    words = size // 4
    tiles = TM * TN + TM + TN + (BM + BN) * BK // threads
    registers = words * tiles + _OTHER_REGISTERS[size]
    most = min(255, _REGISTERS // threads)
    if registers > most:
        return f"about {registers} registers a thread, over {most}"
    return None


def _element(source: str) -> str:
    """Element type of a rewrite of this recipe, read from its own text."""
    for line in source.splitlines():
        if "__shared__" in line:
            words = line.split("__align__(16) ", 1)[1].split()
            return " ".join(words[: next(i for i, w in enumerate(words) if "[" in w)])
    return "float"


def _why(form: MatmulForm, verdict: Verdict | None) -> str:
    limit = f"The kernel is limited by {verdict.subtype}. " if verdict else ""
    return (
        f"{limit}It computes a matrix product ({form.layout}) and reads two operands from global "
        "memory for every multiply-add. A tile in shared memory lets a block share what it read, "
        "and a tile in registers lets a thread use each element it reads several times; the next "
        "tile is fetched while this one is multiplied."
    )
