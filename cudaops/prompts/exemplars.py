"""Short rewrites of our own to learn the form from, one a way of relieving a verdict.

`tests/prompts/test_exemplars.py` compiles each, and has each judged against the kernel that its
first comment names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from cudaops.domain.profile import Verdict


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


def exemplar_for(verdict: Verdict) -> Exemplar:
    """The exemplar nearest to what limits a kernel."""
    return read_exemplar(NEAREST.get(verdict.subtype, NEAREST["unknown"]))


@cache
def read_exemplar(name: str) -> Exemplar:
    """The exemplar of this name. Raises FileNotFoundError where there is none."""
    path = files("cudaops.prompts") / "exemplars" / f"{name}.cu"
    return Exemplar(name, path.read_text("utf-8"))
