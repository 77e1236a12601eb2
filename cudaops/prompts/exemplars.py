"""Short rewrites of our own to learn the form from, one a way of relieving a verdict.

`tests/prompts/test_exemplars.py` compiles each, and has each judged against the kernel that its
first comment names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from cudaops.domain.profile import Verdict
from cudaops.domain.run import AccessSummary


class Exemplar(NamedTuple):
    """One rewrite, directives included."""

    name: str
    text: str


NEAREST: Mapping[str, str] = MappingProxyType({
    "l1_load_throughput": "tiled_product",
    "shared_throughput": "tiled_product",
    "l2_bandwidth": "tiled_product",
    "fma_pipe": "tiled_product",
    "fp64_pipe": "tiled_product",
    "tensor_pipe": "tiled_product",
    "register_spills": "tiled_product",
    "occupancy_registers": "tiled_product",
    "occupancy_shared": "tiled_product",
    "stall_lg_throttle": "tiled_product",
    "stall_mio_throttle": "tiled_product",
    "stall_short_scoreboard": "tiled_product",
    "uncoalesced_access": "padded_transpose",
    "shared_bank_conflicts": "padded_transpose",
    "atomic_contention": "two_step_sum",
    "stall_barrier": "two_step_sum",
    "stall_membar": "two_step_sum",
    "divergence": "two_step_sum",
    "dram_bandwidth": "vector_stream",
    "issue_slots": "vector_stream",
    "integer_pipe": "vector_stream",
    "sfu_pipe": "vector_stream",
    "many_waves": "vector_stream",
    "tail_effect": "vector_stream",
    "launch_bound": "vector_stream",
    "occupancy_block_size": "vector_stream",
    "stall_branch": "vector_stream",
    "near_peak": "vector_stream",
    "unknown": "vector_stream",
    "occupancy_grid": "split_rows",
    "low_parallelism": "split_rows",
    "stall_wait": "split_rows",
    "stall_long_scoreboard": "staged_rows",
})  # fmt: skip
"""Subtype of a verdict to an exemplar: the one that shows what `cudaops.cuda.subtypes` names first
as its relief, or comes nearest to it."""


def exemplar_for(verdict: Verdict, accesses: Sequence[AccessSummary]) -> Exemplar | None:
    """The exemplar nearest to what limits a kernel; None where the kernel has nothing of what that
    one rewrites: an example of another family is no help.

    `accesses`: what the kernel does with memory; empty where that is not known.
    """
    name = NEAREST.get(verdict.subtype, NEAREST["unknown"])
    return read_exemplar(name) if not accesses or _bears_on(name, accesses) else None


def _bears_on(name: str, accesses: Sequence[AccessSummary]) -> bool:
    """Whether the kernel has the accesses that an exemplar makes cheaper."""
    outside = [a for a in accesses if a.space in ("global", "module", "unknown")]
    reads = [a for a in outside if a.kind == "read"]
    again = {a.array for a in reads if a.loops}
    match name:
        case "tiled_product":
            return len(again) > 1
        case "split_rows" | "staged_rows":
            return bool(again)
        case "padded_transpose":
            strided = any(a.step not in ("same", "adjacent") for a in outside)
            return strided or any(a.space == "shared" for a in accesses)
        case "two_step_sum":
            return bool(again) or any(a.kind == "atomic" for a in accesses)
    return bool(reads)


@cache
def read_exemplar(name: str) -> Exemplar:
    """The exemplar of this name. Raises FileNotFoundError where there is none."""
    path = files("cudaops.prompts") / "exemplars" / f"{name}.cu"
    return Exemplar(name, path.read_text("utf-8"))
