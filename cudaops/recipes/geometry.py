"""Other block sizes for a kernel that does not care how its threads are grouped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cudaops.domain.hypothesis import Family
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.geometry_proof import Freedom, prove_free
from cudaops.recipes.spelling import free_name, written

_VALUES: Mapping[int, Mapping[str, tuple[int, ...]]] = {
    1: {"x": (256, 128, 512, 64, 1024, 32)},
    2: {"x": (32, 64, 16, 128, 256, 8), "y": (8, 4, 16, 2, 1, 32)},
    3: {"x": (32, 64, 16, 128, 8), "y": (4, 2, 8, 1), "z": (2, 1, 4)},
}
_LINKAGE = re.compile(r'\bextern\s*"C"\s*(?!\{)')
"""How a function's name is spelled for the linker: says nothing about what it computes."""
_MAX_THREADS = 1024
_WARP = 32


class GeometryRecipe:
    """The same kernel, launched with another block size over the same threads."""

    name = "geometry"
    title = "launch geometry"
    family: Family = "launch_geometry"
    relieves = frozenset({
        "occupancy_block_size", "low_parallelism", "occupancy_grid", "tail_effect",
        "uncoalesced_access", "stall_long_scoreboard", "stall_lg_throttle", "dram_bandwidth",
        "l1_load_throughput", "occupancy_registers",
    })  # fmt: skip

    def propose(
        self,
        program: Program,
        kernel: Kernel,
        workloads: Sequence[Workload],
        verdict: Verdict | None,
    ) -> tuple[Rewrite, ...]:
        """One Rewrite with a tune name for each used dimension, or none."""
        try:
            freedom = prove_free(program, kernel, workloads)
            source = _source(program, kernel, workloads, freedom)
            return (written(source, self.name, self.title, _why(verdict)),)
        except NotUnderstood:
            return ()

    def seeds(self, rewrite: Rewrite) -> tuple[Mapping[str, int], ...]:
        """The first values alone; the neighbourhood is small."""
        return ({},)

    def refusal(self, rewrite: Rewrite) -> str | None:
        """Blocks that no device takes, or that fill no warp."""
        threads = 1
        for value in rewrite.values().values():
            threads *= value
        if threads > _MAX_THREADS:
            return f"{threads} threads a block, over {_MAX_THREADS}"
        return f"{threads} threads do not fill a warp" if threads < _WARP else None


def _why(verdict: Verdict | None) -> str:
    limit = f"The kernel is limited by {verdict.subtype}. " if verdict else ""
    return (
        f"{limit}Its threads share nothing with their block, so the block size is free: it "
        "decides how many warps an SM holds, how full the last wave is, and which threads "
        "read neighbouring addresses together."
    )


def _source(
    program: Program, kernel: Kernel, workloads: Sequence[Workload], freedom: Freedom
) -> str:
    name = free_name(f"{kernel.name}_regrouped", program)
    names = {axis: f"CUDAOPS_B{axis.upper()}" for axis in freedom.axes}
    lines = ["// The same kernel over the same threads, in blocks of another size."]
    for axis, values in zip(freedom.axes, _VALUES[len(freedom.axes)].values(), strict=True):
        lines.append(f"// @tune {names[axis]} = {', '.join(map(str, values))}")
    lines += [f"// @requires {r}" for r in _requirements(freedom, names)]
    dimensions = "xyz"[: "xyz".index(max(freedom.axes)) + 1]
    grid, block = [], []
    for axis in dimensions:
        grid.append(_grid(axis, freedom, names))
        block.append(names.get(axis, "1"))
    arguments = ", ".join(p.name for p in kernel.parameters)
    callee = name + _instance(kernel, workloads)
    extents = f"grid=({', '.join(grid)}) block=({', '.join(block)})"
    lines.append(f"// @launch {callee} {extents} args=({arguments})")
    text = _LINKAGE.sub("", kernel.text)
    return "\n".join([*lines, re.sub(rf"\b{kernel.name}\b", name, text), ""])


def _grid(axis: str, freedom: Freedom, names: Mapping[str, str]) -> str:
    if axis not in names:
        return "1"
    extent = freedom.extents.get(axis)
    if extent is None:
        return f"gridDim.{axis} * blockDim.{axis} / {names[axis]}"
    return f"ceil_div({extent.text()}, {names[axis]})"


def _requirements(freedom: Freedom, names: Mapping[str, str]) -> list[str]:
    found = []
    for axis in freedom.axes:
        extent = freedom.extents.get(axis)
        total = f"gridDim.{axis} * blockDim.{axis}"
        if extent is None:
            found.append(f"{total} % {names[axis]} == 0")
        else:
            found.append(f"{total} >= {extent.text()}")
    idle = [f"{root}.{a}" for root in ("gridDim", "blockDim") for a in "xyz" if a not in names]
    if idle:
        found.append(f"{' * '.join(idle)} == 1")
    if freedom.most_threads is not None:
        found.append(f"{' * '.join(names.values())} <= {freedom.most_threads}")
    return found


def _instance(kernel: Kernel, workloads: Sequence[Workload]) -> str:
    """Template arguments of the launch, the same at every one."""
    if not kernel.template_parameters:
        return ""
    found = {w.callee.partition("<")[2].rpartition(">")[0] for w in workloads}
    if len(found) != 1 or not (arguments := found.pop()):
        raise NotUnderstood("template arguments that differ or are not written")
    return f"<{arguments}>"
