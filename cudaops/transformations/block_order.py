"""The axes of the grid in another order, so that blocks which touch the same memory run together.

A GPU starts blocks along x first, then along y, then along z. Blocks that are neighbours along the
last axis are a whole layer of the grid apart: what both of them read, halos and the two ends of a
sector, is in L2 no more when the second one comes. With the axes turned,

    grid=(gridDim.z, gridDim.y, gridDim.x)

and `blockIdx.z` where the author says `blockIdx.x`, every block does what it did before. CUDA gives
blocks no order: a kernel that waits for other blocks is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import clusters
from cudaops.program import syntax as s
from cudaops.program.plans import GRID_MOST
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.places import AXES, builtin, builtins_in
from cudaops.transformations.thread_communication import functions_say, thread_communication
from cudaops.transformations.trees import changed

_LEAST_BLOCKS = 264
"""Of a grid whose blocks do not all run at once on a large GPU, two on each SM: in a smaller one
their order is of no account."""


class BlockOrder:
    """Another axis of the grid is the one along which blocks start first."""

    name = "block_order"
    title = "block order for locality"
    family: Family = "launch_geometry"
    relieves = frozenset({
        "dram_bandwidth", "l2_bandwidth", "stall_long_scoreboard", "stall_lg_throttle",
        "uncoalesced_access",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Orders of the axes that have several blocks, turned round first; once a kernel."""
        if any(x.name == self.name and x.kernel in ("", draft.launch.kernel) for x in draft.steps):
            return ()
        thread_communication(draft)
        grid = draft.workloads[0].grid
        extents = {a: int(getattr(grid, a)) for a in AXES}
        long = "".join(a for a in AXES if extents[a] > 1)
        if len(long) < 2 or grid.volume < _LEAST_BLOCKS:
            return ()
        turned = ["".join(p) for p in permutations(reversed(long))]
        return tuple({"order": _whole(long, order)} for order in turned if order != long)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Raises NotUnderstood for blocks that wait for each other, or know more of their place."""
        thread_communication(draft).refuse_unknown()
        if clusters.WORD in draft.text:
            raise NotUnderstood("thread block clusters")
        order = str(setting["order"])
        body = draft.form.kernel.body
        if ({"blockIdx", "gridDim"} & functions_say(draft)) | (builtins_in(body) & s.BUILTINS):
            raise NotUnderstood("a launch with more than scalar parameters")
        goes_to = {axis: AXES[at] for at, axis in enumerate(order)}
        requires = [draft.launch_expression("gridDim.x") <= GRID_MOST[1]] if order[0] != "x" else []
        if not draft.holds(*requires):
            raise NotUnderstood("more blocks along x than another axis can have")
        x, y, z = (draft.launch.grid[AXES.index(axis)] for axis in order)
        edited = draft.with_body(changed(body, lambda node: _renamed(node, goes_to)))
        edited = edited.launched(grid=(x, y, z)).requiring(*requires)
        told = f"Blocks start along {order[0]} first, then along {order[1]} and {order[2]}."
        done = edited.stepped(Step(self.name, setting, told))
        _ = done.form
        return done


def _whole(long: str, order: str) -> str:
    """An order of all axes: those of one block stay where they are."""
    places = iter(order)
    return "".join(next(places) if axis in long else axis for axis in AXES)


def _renamed(node: Any, goes_to: Mapping[str, str]) -> Any:
    root, _, axis = builtin(node).partition(".")
    if root not in ("blockIdx", "gridDim") or goes_to[axis] == axis:
        return node
    return s.Member(s.Name(root), goes_to[axis], type=node.type)
