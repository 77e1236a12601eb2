"""Input sets: memory contents when baseline and candidate are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from cudaops.domain.workload import FLOATING, Allocation, Element, Field, Workload
from cudaops.executors.arrays import (
    Array,
    Values,
    filled,
    in_memory,
    read_array,
    stored,
    threads_for_arrays,
    write_array,
    write_pieces,
    write_widened,
)
from cudaops.executors.base import InputSet
from cudaops.executors.fields import (
    draw_fields,
    floating_views,
    views,
    widened_argument,
    write_widened_fields,
)
from cudaops.program.analysis.facts import Access, KernelFacts
from cudaops.program.analysis.polynomials import Symbol

CaseKind = Literal[
    "captured", "exact", "exact_positive", "exact_touched", "signed", "positive", "scaled",
    "touched", "large", "structured", "tiny", "permuted", "resampled", "reversed", "permuted_again",
    "spread", "relaunched", "infinite", "drawn",
]  # fmt: skip
"""What the contents of one case are drawn from: see `drawn`."""

EXACT_KINDS: tuple[CaseKind, ...] = ("exact", "exact_positive")
"""Tried in this order; the second has no zero to divide by and nothing negative."""

DOMAIN_KINDS: tuple[CaseKind, ...] = ("signed", "positive", "scaled")
"""Likewise; the first on which the baseline is finite determines the baseline's domain."""

FLOATING_KINDS: tuple[CaseKind, ...] = ("large", "infinite", "structured", "tiny")
"""Further sets for floating inputs, in order of what they show. `infinite` has infinities at a few
places, of which the kernel's own arithmetic makes NaN (inf - inf, 0 * inf). NaN itself is put into
no input: what `fmaxf` or a comparison makes of one depends on the order of its operands, so two
correct reductions differ there, while infinities come out of every order alike."""

INTEGER_KINDS: tuple[CaseKind, ...] = (
    "permuted", "spread", "touched", "resampled", "reversed", "permuted_again",
)  # fmt: skip
"""Sets where no floating buffer is read. All values are captured ones, so an index stays one. Where
one value is most of a buffer, it stays in most of its places when it is permuted or drawn again: a
candidate that knows the captured contents by a few places then passes with a chance that is no
rare one. `spread` takes every value that occurs equally often."""

RELAUNCHED: CaseKind = "relaunched"
"""The captured inputs, and in what is both read and written the captured results: the launch once
more on what it left. Where a program begins with zeros, no other set puts a number there that is
seen beside what is added to it, and a candidate that overwrites would pass."""

EXACT_CASES: frozenset[CaseKind] = frozenset({"exact", "exact_positive", "exact_touched"})
"""Cases on which results that are integers must be equal bit for bit."""

EXACT_RANGE = 3
"""Exact inputs are integers from -3 to 3: products up to 9, so sums of 1.8 million terms stay
below 2**24 and every order of summation gives the same float."""

EXPONENT: dict[Element, int] = {"f16": 6, "bf16": 20, "f32": 20, "f64": 200}
"""Power of two by which `large` and `tiny` differ from unit scale. 2**20 is beyond what binary16
holds (65504) and 2**-40, a product of two tiny values, below what it holds; third powers stay
within f32 (2**127). f64 is measured against the range of f32, f16 against that of fp8 e5m2 (57344,
a product of two values of 2**6 and more with a sum over it). Source: IEEE 754-2019 table 3.5; OCP
8-bit Floating Point Specification 1.0."""

FEW = 16
"""One in so many elements of `structured` stands out."""
OUTSTANDING = (16.0, 64.0)
"""Magnitudes of those: far beyond where a truncated series is good, and e**64 is finite in f32."""

INFINITIES = (2, 16)
"""Least and most infinities in one buffer of `infinite`; between these one in a hundred elements.
One makes a row or a column of a product of matrices NaN: more would leave nothing finite."""

LEAST_TABLE = 8
"""Elements that are in order by chance once in 40,000 times."""

TOUCHED = 256
"""One in so many elements of `touched` is another; one that reads only some of its inputs to know
them again (a fingerprint) takes this set for the one it was made from."""


PIECE = 1 << 20
"""Elements that are drawn with one generator where a buffer has more than two pieces."""


def before_path(workload: Workload, allocation: Allocation) -> Path:
    """File with the captured contents before the launch."""
    return Path(workload.folder) / allocation.before


def has_floating_input(workload: Workload) -> bool:
    """Whether any buffer that the kernel reads holds floating values."""
    return any(view.allocation.role != "out" for view in floating_views(workload))


def holds_doubles(workload: Workload) -> bool:
    """Whether any buffer holds doubles."""
    return any(view.element == "f64" for view in floating_views(workload))


class CaseDraw(NamedTuple):
    """How the values of one case are drawn."""

    kind: CaseKind
    seed: int
    signed: bool = True
    """Whether the baseline stays finite on zeros and negative values."""
    touches: InputSet | None = None
    """What `exact_touched` changes a few elements of."""
    kept: frozenset[int] = frozenset()
    """Allocations that keep what was captured, whatever the kind: places may be computed from
    their values."""


def build_case(workload: Workload, draw: CaseDraw, folder: Path, poison: int) -> InputSet:
    """Write the contents of one case under `folder` and describe them.

    `out` buffers are filled with `poison` (0-255). Where a floating buffer is read, those get new
    values and integer ones keep the captured values, because they may be indices.
    """
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng((draw.seed, get_args(CaseKind).index(draw.kind)))
    integers = draw.kind in INTEGER_KINDS
    contents: dict[int, str] = {}
    poisoned: dict[int, int] = {}
    for allocation in workload.allocations:
        captured = before_path(workload, allocation)
        contents[allocation.index] = str(captured)
        if allocation.role == "out":
            poisoned[allocation.index] = poison
        elif draw.kind == RELAUNCHED:
            if allocation.role == "inout":
                contents[allocation.index] = str(Path(workload.folder) / allocation.after)
        elif draw.kind == "captured" or allocation.index in draw.kept:
            continue
        elif _varies(allocation, integers):
            touched = contents if draw.touches is None else draw.touches.contents
            source = Path(touched[allocation.index])
            path = folder / f"in_{allocation.index}.bin"
            if allocation.fields:
                draw_fields(path, source, allocation, _by_field(draw, generator))
            else:
                write_drawn(path, draw, allocation.element, source, generator)
                pad_tail(path, captured, allocation.size_bytes)
            contents[allocation.index] = str(path)
    return InputSet(contents=contents, poison=poisoned, scratch_poison=poison)


def searched_tables(workload: Workload, facts: KernelFacts | None) -> frozenset[int]:
    """Buffers that ascend as captured and that are searched: memory contents say where is
    read, and not by an index that another buffer holds. What a search gives in any other order is
    nothing that an author promises."""
    names: dict[int, list[str]] = {}
    for pointer in workload.pointers():
        names.setdefault(pointer.allocation, []).append(pointer.name)
    return frozenset(
        a.index
        for a in workload.allocations
        if facts is not None
        and a.role != "out"
        and a.element != "opaque"
        and any(
            _is_searched(x, facts) for name in names.get(a.index, []) for x in facts.touching(name)
        )
        and ascends(read_array(before_path(workload, a), a.element))
    )


def _is_searched(access: Access, facts: KernelFacts) -> bool:
    if access.offset_bytes is None:
        return True
    symbols = {a.name for a in access.offset_bytes.atoms() if isinstance(a, Symbol)}
    unknowns = [facts.unknowns[name] for name in symbols & facts.unknowns.keys()]
    return any("memory" in u.depends and u.array in ("", access.array) for u in unknowns)


def ascends(values: Array) -> bool:
    """Whether these, some at least, are in order and are not all the same."""
    if values.size < LEAST_TABLE:
        return False
    with np.errstate(invalid="ignore"):
        return bool(np.all(values[1:] >= values[:-1]) and values[0] < values[-1])


def _varies(allocation: Allocation, integers: bool) -> bool:
    return any(_is_drawn(view.element, integers) for view in views(allocation))


def _is_drawn(element: Element, integers: bool) -> bool:
    return element != "opaque" and (integers or element in FLOATING)


def _by_field(
    draw: CaseDraw, generator: np.random.Generator
) -> Callable[[Field, Array], Array | None]:
    """Each field as if it were a buffer."""
    integers = draw.kind in INTEGER_KINDS

    def one(field: Field, values: Array) -> Array | None:
        if not _is_drawn(field.element, integers):
            return None
        return drawn(draw, field.element, values, generator)

    return one


def drawn(draw: CaseDraw, element: Element, source: Array, generator: np.random.Generator) -> Array:
    """New values for one buffer, as many as are in `source`: the captured ones, or those of the
    case that is touched. A large buffer is drawn in pieces."""
    kind, count = draw.kind, source.size
    piece = _by_piece(draw, element, in_memory(source), generator)
    if piece is not None:
        return np.concatenate([piece(start, min(PIECE, count - start)) for start in _starts(count)])
    if count <= 2 * PIECE or kind in ("touched", "reversed"):
        return _drawn(draw, element, source, generator)
    whole = count // PIECE * PIECE
    pieces = [source[start : start + PIECE] for start in range(0, whole, PIECE)]
    if kind in ("permuted", "permuted_again"):
        pieces = [pieces[place] for place in generator.permutation(len(pieces))]
    pieces += [source[whole:]] if whole < count else []
    among = source
    if kind in ("spread", "resampled"):
        if kind == "spread":
            among = _distinct(_by_all(pieces, generator, lambda piece, _: _distinct(piece)))
        return _by_all(pieces, generator, lambda piece, own: own.choice(among, piece.size))
    return _by_all(pieces, generator, lambda piece, own: _drawn(draw, element, piece, own))


def write_drawn(
    path: Path, draw: CaseDraw, element: Element, source: Path, generator: np.random.Generator
) -> None:
    """Write what `drawn` gives for the contents of a file. Where no value needs more of a large
    buffer than its own piece, there is never more than some pieces in memory."""
    values = stored(source, element)
    piece = _by_piece(draw, element, values, generator)
    if piece is None:
        write_array(path, drawn(draw, element, read_array(source, element), generator), element)
    else:
        write_pieces(path, element, values.size, PIECE, piece)


def _starts(count: int) -> range:
    return range(0, count, PIECE)


def _by_piece(
    draw: CaseDraw, element: Element, source: Values, generator: np.random.Generator
) -> Callable[[int, int], Array] | None:
    """What draws the piece with its first element and its length, in any order and by any thread:
    each has a generator of its own, so what comes out depends on no number of processors. None
    where the buffer is small, or a piece needs the others."""
    kind, count = draw.kind, source.size
    if count <= 2 * PIECE or kind in INTEGER_KINDS:
        return None
    places, others = np.empty(0, np.int64), np.empty(0)
    if kind == "exact_touched":
        places = _places(count, generator)
        others = _small_integers(places.size, draw.signed, generator)
    own = [] if kind == "exact_touched" else generator.spawn(len(_starts(count)))
    if kind == "infinite":
        draw = draw._replace(kind="signed")
        chosen = generator.choice(count, INFINITIES[1], replace=False)
        order = np.argsort(chosen)
        places, others = chosen[order], _infinities(chosen.size, draw.signed)[order]

    def piece(start: int, step: int) -> Array:
        part = source.read(start, step)
        values = part.copy() if not own else _drawn(draw, element, part, own[start // PIECE])
        first, last = np.searchsorted(places, [start, start + step])
        values[places[first:last] - start] = others[first:last]
        return values

    return piece


def _by_all(
    pieces: Sequence[Array],
    generator: np.random.Generator,
    made: Callable[[Array, np.random.Generator], Array],
) -> Array:
    """Each piece with a generator of its own: what comes out depends on no number of processors."""
    with ThreadPoolExecutor(threads_for_arrays()) as pool:
        return np.concatenate(list(pool.map(made, pieces, generator.spawn(len(pieces)))))


def _distinct(values: Array) -> Array:
    """The different integers among these, ascending: what `np.unique` gives, which looks each up in
    a hash table (numpy 2.3 and later). Of 2^24 different ones that took 21 s, and sorting 0.1 s
    (two cores of an EPYC, 2026-11-25)."""
    if values.itemsize == 1:
        return np.unique(values)
    ordered = np.sort(values)
    return (
        ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if ordered.size else ordered
    )


def _drawn(
    draw: CaseDraw, element: Element, source: Array, generator: np.random.Generator
) -> Array:
    count, kind = source.size, draw.kind
    if kind in ("signed", "large", "tiny"):
        values = generator.standard_normal(count)
        power = {"signed": 0, "large": 1, "tiny": -1}[kind] * EXPONENT.get(element, 0)
        return np.ldexp(values if draw.signed else np.abs(values), power)
    if kind == "infinite":
        return _infinite(count, draw.signed, generator)
    if kind == "positive":
        return generator.uniform(0.1, 1.0, count)
    if kind == "scaled":
        return source * generator.uniform(0.5, 1.5, count)
    if kind == "structured":
        return _structured(count, draw.signed, generator)
    if kind in EXACT_KINDS:
        return _small_integers(count, kind == "exact", generator)
    if kind == "exact_touched":
        return _touched(source, lambda n: _small_integers(n, draw.signed, generator), generator)
    if kind == "touched":
        return _touched(source, lambda n: generator.choice(source, n), generator)
    if kind == "spread":
        return generator.choice(_distinct(source), count) if count else source
    if kind == "resampled":
        return generator.choice(source, count) if count else source
    return source[::-1] if kind == "reversed" else generator.permutation(source)


def _small_integers(count: int, signed: bool, generator: np.random.Generator) -> Array:
    least = -EXACT_RANGE if signed else 1
    return generator.integers(least, EXACT_RANGE + 1, count).astype(np.float64)


def _structured(count: int, signed: bool, generator: np.random.Generator) -> Array:
    """One value throughout but for a few, the first and the last among them."""
    values = np.zeros(count) if signed else np.ones(count)
    if count:
        places = generator.integers(0, count, max(1, count // FEW))
        places = _distinct(np.concatenate([places, [0, count - 1]]))
        large = generator.uniform(*OUTSTANDING, places.size)
        values[places] = large * generator.choice([-1.0, 1.0], places.size) if signed else large
    return values


def _infinite(count: int, signed: bool, generator: np.random.Generator) -> Array:
    values = generator.standard_normal(count)
    least, most = INFINITIES
    places = generator.permutation(count)[: min(most, max(least, count // 100))]
    values[places] = _infinities(places.size, signed=True)
    return values if signed else np.abs(values)


def _infinities(count: int, signed: bool) -> Array:
    values = np.full(count, np.inf)
    values[1::2] *= -1.0 if signed else 1.0
    return values


def _touched(
    source: Array, others: Callable[[int], Array], generator: np.random.Generator
) -> Array:
    values = source.copy()
    if values.size:
        places = _places(values.size, generator)
        values[places] = others(places.size)
    return values


def _places(count: int, generator: np.random.Generator) -> Array:
    """Those of `touched`, ascending."""
    return _distinct(generator.integers(0, count, max(4, count // TOUCHED)))


def pad_tail(path: Path, captured: Path, size_bytes: int) -> None:
    """Give the file the allocation's exact size: bytes past the last whole element are kept."""
    missing = size_bytes - path.stat().st_size
    if missing > 0:
        with captured.open("rb") as source, path.open("ab") as target:
            source.seek(size_bytes - missing)
            target.write(source.read(missing))


def widen(
    workload: Workload, inputs: InputSet, folder: Path, *, wide_doubles: bool = False
) -> InputSet:
    """The same values as doubles, for the widened baseline; doubles as `long double` where those
    are widened too. What is filled with poison needs none."""
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[int, str] = {}
    for allocation in workload.allocations:
        source = Path(inputs.contents[allocation.index])
        contents[allocation.index] = str(source)
        target = folder / f"wide_{allocation.index}.bin"
        if allocation.index in inputs.poison:
            continue
        if allocation.fields:
            write_widened_fields(target, source, allocation)
        elif allocation.element in FLOATING and (wide_doubles or allocation.element != "f64"):
            write_widened(target, source, allocation.element)
        else:
            continue
        contents[allocation.index] = str(target)
    return inputs.model_copy(update={"contents": contents})


def can_widen(workload: Workload, *, wide_doubles: bool) -> bool:
    """Whether the widened layout of all memory and of every argument is known: a structure's is
    where doubles are widened too, or there are none in it."""
    memory = (*workload.allocations, *(g for g in workload.globals if g.is_used))
    given = [(a.wide_bytes, a.fields) for a in workload.arguments if a.kind == "opaque"]
    return all(one.can_widen(wide_doubles=wide_doubles) for one in memory) and all(
        size is not None and (wide_doubles or all(field.element != "f64" for field in fields))
        for size, fields in given
    )


def widened_arguments(workload: Workload) -> Workload:
    """The same, with structures that are passed by value as the widened baseline takes them."""
    arguments = tuple(map(widened_argument, workload.arguments))
    return workload.model_copy(update={"arguments": arguments})


def as_left(
    workload: Workload, inputs: InputSet, outputs: Mapping[int, str], wide: Mapping[int, str]
) -> None:
    """Places that nobody wrote hold other numbers as doubles: in the files of `wide` let them be
    what they are in `outputs`. Structures are left alone: their yardstick is none then."""
    for a in workload.allocations:
        if a.index not in inputs.poison or a.index not in wide or a.element not in FLOATING:
            continue
        plain = read_array(outputs[a.index], a.element)
        if plain.size == 0:
            continue
        doubles = np.memmap(wide[a.index], np.float64, "r+", shape=plain.shape)
        left = plain == filled(inputs.poison[a.index], 1, a.element).read(0, 1)[0]
        doubles[left] = plain[left]
        doubles.flush()
