"""Blocks that are tiles of an image, for threads that take pixels by one flat index.

    int i = blockIdx.x * blockDim.x + threadIdx.x;  int x = i % width, y = i / width;

A block of such a kernel is a piece of one row: what it reads of the rows above and below no thread
of it shares, and L1 gives each row once for every row that looks at it. With 32 by 8 threads as a
tile of the same image most neighbours are the block's own.

Every whole band of as many rows as a tile has is gone through tile by tile, what is left behind
the last one as before. That puts the indices of the grid in another order, each once: whatever the
width of a row says, every thread's work is done as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.places import GlobalThreadIndex, builtins_in, through_casts
from cudaops.transformations.text import Raw
from cudaops.transformations.thread_communication import WARP, functions_say, thread_communication

_ROWS = (8, 4, 16)
_INTEGERS = ("int", "unsigned", "long long", "unsigned long long")
_MOST = 2**31 - 1


class Tiles:
    """A block's threads stand in several rows of the image that a flat index goes through."""

    name = "tiles"
    title = "image tiles as blocks"
    family: Family = "launch_geometry"
    relieves = frozenset({
        "l2_bandwidth", "dram_bandwidth", "l1_load_throughput", "stall_long_scoreboard",
        "stall_lg_throttle", "uncoalesced_access",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Rows of a tile, for each parameter by which the index is divided."""
        if any(x.name == self.name and x.kernel in ("", draft.launch.kernel) for x in draft.steps):
            return ()
        threads = draft.value("blockDim.x")
        if not isinstance(threads, int) or not thread_communication(draft).is_alone:
            return ()
        found: list[Setting] = []
        for width in dict.fromkeys(_divisors(draft)):
            for rows in _ROWS:
                whole = threads % (rows * WARP) == 0
                if whole and draft.holds(*_conditions(draft, width, threads // rows)):
                    found.append({"rows": rows, "width": width})
        return tuple(found[:4])

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Raises NotUnderstood where a thread can tell how it was grouped."""
        found = thread_communication(draft)
        found.refuse_unknown()
        body = draft.form.kernel.body
        if not found.is_alone or functions_say(draft):
            raise NotUnderstood("a barrier or shared-memory communication within the block")
        if any(b in builtins_in(body) for b in ("threadIdx.y", "threadIdx.z")):
            raise NotUnderstood("blocks of several rows")
        rows, width = int(setting["rows"]), str(setting["width"])
        threads = draft.value("blockDim.x")
        if not isinstance(threads, int) or threads % (rows * WARP):
            raise NotUnderstood("block sizes that cannot form tiles of whole warps")
        across = threads // rows
        place = draft.fresh_name("place")
        new = s.Name(place, type="unsigned")
        edited = GlobalThreadIndex.of(draft, body, "x").replaced(
            body, lambda x: new if x.type == "unsigned" else s.Cast(x.type, new), totals=True
        )
        if edited is body:
            raise NotUnderstood("no global thread index")
        lines = Raw("\n".join(_lines(draft, place, width, rows, across)))
        done = draft.with_body((lines, *edited)).requiring(*_conditions(draft, width, across))
        if not draft.holds(*done.requires):
            raise NotUnderstood("rows that are not a multiple of the tile")
        says = f"Blocks are tiles of {across} by {rows} in rows of {width}."
        done = done.stepped(Step(self.name, setting, says))
        _ = done.form
        return done


def _divisors(draft: Draft) -> Iterator[str]:
    """Parameters of the kernel by which it, or a function that it gives them to, takes the rest."""
    form = draft.form
    whole = {p.name for p in form.kernel.parameters if p.type in _INTEGERS and not p.is_pointer}
    for x in s.below(form.kernel.body):
        for divisor in _divisors_of(x, form):
            if isinstance(divisor, s.Name) and divisor.text in whole:
                yield divisor.text


def _divisors_of(x: Any, form: s.KernelForm) -> Iterator[Any]:
    match x:
        case s.Binary("%" | "/", _, right):
            yield through_casts(right)
        case s.Call(name, arguments) if (function := form.function(name)) is not None:
            inside = set[str]()
            for y in s.below(function.body):
                match y:
                    case s.Binary("%" | "/", _, s.Name(text)):
                        inside.add(text)
            for p, argument in zip(function.parameters, arguments, strict=False):
                if p.name in inside:
                    yield through_casts(argument)


def _lines(draft: Draft, place: str, width: str, rows: int, across: int) -> Iterator[str]:
    tiles, band = draft.fresh_name("tiles"), draft.fresh_name("band")
    yield f"const unsigned {tiles} = (unsigned){width} / {across};  // of one band of {rows} rows"
    yield f"const unsigned {band} = blockIdx.x / {tiles};"
    yield f"unsigned {place} = blockIdx.x * blockDim.x + threadIdx.x;"
    yield f"if (({band} + 1) * {tiles} <= gridDim.x)"
    yield (
        f"    {place} = ({band} * {rows} + threadIdx.x / {across}) * (unsigned){width}"
        f" + blockIdx.x % {tiles} * {across} + threadIdx.x % {across};"
    )


def _conditions(draft: Draft, width: str, across: int) -> tuple[LaunchExpression, ...]:
    row, block = draft.launch_expression(width), draft.launch_expression("blockDim.x")
    threads = draft.value("blockDim.x") or 0
    return (
        block.equals(threads),
        row >= across,
        row <= _MOST,
        (row % across).equals(0),
        draft.launch_expression("gridDim.x") * threads <= _MOST,
    )
