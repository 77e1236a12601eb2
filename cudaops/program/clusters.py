"""Thread block clusters: what `__cluster_dims__` says of the kernels of a text.

The attribute is compiled into a kernel, so a launch of it is an ordinary one whose grid is a
multiple of the cluster along every axis. In a rewrite it holds numbers and tune names alone: what a
kernel's cluster is can then be read off the text, and is the same to every compiler.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from cudaops.cuda.devices import Device
from cudaops.domain.base import Dim3
from cudaops.domain.program import Kernel, Program
from cudaops.errors import InputError, PlanError
from cudaops.program.constants import integer_constants, integer_macros
from cudaops.program.expressions import parse
from cudaops.program.lexing import Lexed, byte_text, closing, line_of, plain_text, split_commas
from cudaops.program.outline import Declaration, Outline, outline

WORD = "__cluster_dims__"
LEAST_CAPABILITY = (9, 0)
"""Source: CUDA C++ Programming Guide, thread block clusters."""
MOST_BLOCKS = 8
"""Of one cluster, on every device that has them. Source: the same, portable cluster size."""

_LITERAL = re.compile(r"[1-9]\d{0,5}")
_TUNE = re.compile(r"^\s*//\s*@tune\s+(\w+)\s*=([-\d\s,]+)$", re.MULTILINE)


class StatedCluster(NamedTuple):
    """One `__cluster_dims__` in the head of a kernel's definition."""

    item: Declaration
    start: int
    """Byte of the word."""
    extents: tuple[str, ...]
    """One to three, as written, where nothing else is between the parentheses."""


def stated_clusters(facts: Outline) -> Iterator[StatedCluster]:
    """Those before the name of a kernel that is defined there."""
    tokens = facts.tokens
    for item in facts.items:
        if not item.is_kernel or item.parameters is None:
            continue
        for at in range(item.first, item.parameters[0] - 1):
            if tokens[at].text == WORD and tokens[at + 1].text == "(":
                inside = tokens[at + 2 : closing(tokens, at + 1)]
                parts = split_commas(inside) if inside else []
                texts = (" ".join(t.text for t in part) for part in parts)
                yield StatedCluster(item, tokens[at].start, tuple(texts))


def cluster_problems(
    facts: Outline, words: Sequence[int], tuned: Mapping[str, Sequence[int]]
) -> Iterator[tuple[int, str]]:
    """What is wrong with the clusters of a rewrite, with the byte where it is.

    `words`: where `__cluster_dims__` is in the text, in any place. `tuned`: the values that a
    tune name may have.
    """
    found = list(stated_clusters(facts))
    placed = {one.start for one in found}
    head = f"`{WORD}` stands in the head of a `__global__` function that has its body there, "
    for start in words:
        if start not in placed:
            yield start, f"{head}before the name, and in no macro"
    for one in found:
        if problem := _unreadable(one, tuned):
            yield one.start, problem
    yield from _differing(facts, found)


def _unreadable(one: StatedCluster, tuned: Mapping[str, Sequence[int]]) -> str | None:
    plain = all(_LITERAL.fullmatch(x) or x in tuned for x in one.extents)
    if not plain or not 1 <= len(one.extents) <= 3:
        return f"`{WORD}` takes one to three positive integers or @tune names, and no expression"
    names = sorted({x for x in one.extents if x in tuned})
    sizes = []
    for values in itertools.product(*(tuned[name] for name in names)):
        known = dict(zip(names, values, strict=True))
        sizes.append(math.prod(known[x] if x in known else int(x) for x in one.extents))
    if (least := min(sizes, default=0)) > MOST_BLOCKS:
        return f"a cluster of {least} blocks: devices have clusters of at most {MOST_BLOCKS}"
    return None


def _differing(facts: Outline, found: Sequence[StatedCluster]) -> Iterator[tuple[int, str]]:
    """Kernels of one name that a plan could not tell apart by their clusters."""
    of_item: dict[int, list[StatedCluster]] = {}
    for one in found:
        of_item.setdefault(one.item.start, []).append(one)
    clustered = {one.item.name for one in found}
    for name in sorted(clustered):
        kernels = [i for i in facts.items if i.is_kernel and i.name == name]
        each = [tuple(s.extents for s in of_item.get(i.start, [])) for i in kernels]
        if len(each[0]) > 1 or len(set(each)) > 1:
            start = next(one.start for one in found if one.item.name == name)
            yield start, f"every kernel `{name}` has one and the same `{WORD}`, or none has any"


def tune_values(source: str) -> dict[str, tuple[int, ...]]:
    """Tune names of a rewrite with their values, as far as the directives can be read."""
    return {
        name: tuple(int(v) for v in re.findall(r"-?\d+", values))
        for name, values in _TUNE.findall(source)
    }


def device_problem(lexed: Lexed, device: Device) -> tuple[int, str] | None:
    """Why a text with clusters is not for this device, with the byte of the first one."""
    if device.compute_capability >= LEAST_CAPABILITY:
        return None
    at = next((t.start for t in lexed.tokens if t.text == WORD), None)
    if at is None:
        return None
    least, has = ("{}.{}".format(*c) for c in (LEAST_CAPABILITY, device.compute_capability))
    return at, f"thread block clusters need compute capability {least}; {device.name} has {has}"


def kernel_clusters(source: str, values: Mapping[str, int]) -> dict[str, Dim3]:
    """Unqualified name to cluster of the kernels of a text that have one; `values` are those of its
    tune names. Raises PlanError where a cluster is none that can be launched."""
    if WORD not in source:
        return {}
    facts = outline(byte_text(source))
    return {one.item.name: _extent(facts, one, values) for one in stated_clusters(facts)}


def _extent(facts: Outline, one: StatedCluster, values: Mapping[str, int]) -> Dim3:
    raw = facts.lexed.text
    line = line_of(raw, one.start)
    column = len(plain_text(raw[raw.rfind("\n", 0, one.start) + 1 : one.start])) + 1
    try:
        axes = [int(values.get(x, x)) for x in one.extents]
    except ValueError:
        axes = []
    if not 1 <= len(axes) <= 3 or min(axes) < 1:
        text = f"`{WORD}({', '.join(one.extents)})` is no cluster: it takes one to three positive "
        raise PlanError(f"{text}integers or @tune names", line, column)
    cluster = Dim3(**dict(zip("xyz", axes, strict=False)))
    if cluster.volume > MOST_BLOCKS:
        text = f"a cluster {cluster} of `{one.item.name}` has {cluster.volume} blocks; a device"
        raise PlanError(f"{text} takes {MOST_BLOCKS}", line, column)
    return cluster


def unfit(grid: Dim3, cluster: Dim3) -> str | None:
    """Why no launch has this grid with this cluster; None: it can."""
    pairs = ((grid.x, cluster.x), (grid.y, cluster.y), (grid.z, cluster.z))
    if all(blocks % size == 0 for blocks, size in pairs):
        return None
    return f"grid {grid} is no multiple of the cluster {cluster}"


def authors_cluster(program: Program, kernel: Kernel) -> Dim3 | None:
    """The cluster of one of the program's own kernels; None: it has none.

    Raises InputError where it is no number by the program's text alone, as of a template's
    parameter.
    """
    if WORD not in kernel.text:
        return None
    facts = outline(byte_text(kernel.text))
    one = next(stated_clusters(facts), None)
    if one is None:
        return None
    before = plain_text(byte_text(program.file(kernel.file).text)[: kernel.start_byte])
    others = tuple(f.text for f in program.files if f.path != kernel.file)
    known: dict[str, int] = {}
    for text in (*others, program.file(kernel.file).text):
        known |= integer_constants(text)
    for text in (*others, before):
        known |= integer_macros(text)
    try:
        axes = [parse(extent).evaluate(known) for extent in one.extents]
    except PlanError:
        axes = []
    if not 1 <= len(axes) <= 3 or not all(isinstance(n, int) and n >= 1 for n in axes):
        raise InputError(
            f"`{kernel.name}` has clusters of `{', '.join(one.extents)}` blocks, which is no number"
            " by the program's text alone; write numbers or macros that are numbers"
        )
    return Dim3(**{axis: int(str(n)) for axis, n in zip("xyz", axes, strict=False)})


def cluster_grid(grid: Dim3, cluster: Dim3) -> Dim3:
    """The clusters of a grid along each axis."""
    return Dim3(x=grid.x // cluster.x, y=grid.y // cluster.y, z=grid.z // cluster.z)


def cluster_number(block: int, grid: Dim3, cluster: Dim3) -> int:
    """The linear number, among the clusters of the grid, of the one that holds this block."""
    many = cluster_grid(grid, cluster)
    x, y, z = block % grid.x, block // grid.x % grid.y, block // (grid.x * grid.y)
    return x // cluster.x + many.x * (y // cluster.y + many.y * (z // cluster.z))


def blocks_of(number: int, grid: Dim3, cluster: Dim3) -> tuple[int, ...]:
    """The blocks of the cluster of this number, in order of rank."""
    many = cluster_grid(grid, cluster)
    x, y, z = number % many.x, number // many.x % many.y, number // (many.x * many.y)
    pairs = ((x, cluster.x), (y, cluster.y), (z, cluster.z))
    xs, ys, zs = (range(at * size, at * size + size) for at, size in pairs)
    return tuple(i + grid.x * (j + grid.y * k) for k in zs for j in ys for i in xs)


def closed(blocks: Sequence[int], grid: Dim3, cluster: Dim3 | None) -> tuple[int, ...]:
    """The blocks, by their linear numbers, with all others of their clusters; each once, clusters
    in the order of their first block."""
    if cluster is None:
        return tuple(dict.fromkeys(blocks))
    numbers = dict.fromkeys(cluster_number(block, grid, cluster) for block in blocks)
    return tuple(block for number in numbers for block in blocks_of(number, grid, cluster))
