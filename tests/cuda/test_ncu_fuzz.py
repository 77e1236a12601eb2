"""Pages of ncu that were cut, edited and mangled: a typed error or a partial profile, never a wrong
number."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cudaops.cuda.metrics import ALIASES
from cudaops.cuda.ncu_pages import FACTS, NcuLaunch, parse_csv, parse_details, parse_raw
from cudaops.cuda.ncu_problem import REMEDIES, classify_ncu_failure
from cudaops.domain.profile import Profile
from cudaops.errors import InputError
from tests.lanes import examples

DATA = Path(__file__).parents[1] / "data" / "ncu"
TEXTS = {
    page: (DATA / f"h200_naive_matmul_1024.{page}.csv").read_text("utf-8")
    for page in ("details", "raw")
}
TABLES = {page: list(csv.reader(io.StringIO(text))) for page, text in TEXTS.items()}
TRUE = {page: parse_csv(text)[0].profile for page, text in TEXTS.items()}

NASTY = st.sampled_from(
    ["", "n/a", "no data", "nan", "-nan", "inf", "1e999", "96,50", "1.234,5", "1,23", "0x1F", "-",
     "12abc", " ", "٣", "\x00", '"', "n/a,n/a", "1 234", "++1", "1e", "."]
)  # fmt: skip
rows = st.integers(0, 400)
columns = st.integers(0, 2400)
pages = st.sampled_from(["details", "raw"])
fast = settings(max_examples=examples(150), deadline=None)


def written(table: list[list[str]]) -> str:
    page = io.StringIO()
    csv.writer(page, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(table)
    return page.getvalue()


def read(text: str) -> tuple[NcuLaunch, ...] | None:
    """What the parser says; None for its own error, which is one line."""
    refused = ""
    try:
        return parse_csv(text)
    except InputError as error:
        refused = str(error)
    assert "\n" not in refused
    return None


def no_wrong_number(profile: Profile, page: str, but: frozenset[str] = frozenset()) -> None:
    """Every number is one of the untouched page's, under its own name and unit, `but` those."""
    for name, metric in profile.metrics.items():
        assert metric.name == name
        if name in but:
            continue
        true = TRUE[page].metrics.get(name)
        assert true is not None, name
        assert (metric.value, metric.unit) == (true.value, true.unit), name


@given(pages, rows, columns, NASTY)
@fast
def test_a_cell_that_is_no_number_is_missing(page: str, row: int, column: int, nasty: str) -> None:
    table = [list(line) for line in TABLES[page]]
    line = table[row % (len(table) - 1) + 1]
    at = column % len(line)
    assume(table[0][at] not in FACTS)
    before = line[at]
    line[at] = nasty
    found = read(written(table))
    if found is None:
        return
    profile = found[0].profile
    touched: frozenset[str] = frozenset()
    if page == "raw":
        touched = frozenset({table[0][at]})
    elif len(line) > 12:
        # A name or section that was changed makes another row of it.
        touched = frozenset({f"{line[11].strip()} / {line[12].strip()}"})
    no_wrong_number(profile, page, touched)
    if page == "raw" and row % (len(table) - 1) == 1 and before:
        assert table[0][at] not in profile.metrics  # nothing nasty is a number


@given(pages, st.integers(0, 200_000))
@fast
def test_a_page_cut_anywhere(page: str, kept: int) -> None:
    text = TEXTS[page]
    found = read(text[: kept % len(text)])
    if found is not None:
        no_wrong_number(found[0].profile, page)


@given(pages, columns)
@fast
def test_a_column_left_out(page: str, column: int) -> None:
    at = column % len(TABLES[page][0])
    cut = [[cell for i, cell in enumerate(line) if i != at] for line in TABLES[page]]
    found = read(written(cut))
    if found is not None:
        no_wrong_number(found[0].profile, page)


@pytest.mark.parametrize("older", ALIASES)
def test_what_other_versions_print_under_a_label_never_takes_the_name(older: str) -> None:
    """`smsp__cycles_elapsed` and `gpc__cycles_elapsed` are two counters: 1.983 and 1.974 GHz."""
    header, *_ = cut = TABLES["raw"]
    kept = [at for at, name in enumerate(header) if name != ALIASES[older]]
    found = read(written([[line[at] for at in kept] for line in cut]))
    assert found is not None
    assert ALIASES[older] not in found[0].profile.metrics
    assert (older in found[0].profile.metrics) == (older in header)


@given(pages, rows, columns)
@fast
def test_a_cell_left_out_or_twice(page: str, row: int, column: int) -> None:
    """What follows it then stands under its neighbour's name."""
    for change in ("out", "twice"):
        table = [list(line) for line in TABLES[page]]
        line = table[row % (len(table) - 1) + 1]
        at = column % len(line)
        line[at : at + 1] = [] if change == "out" else [line[at], line[at]]
        found = read(written(table))
        if found is not None:
            no_wrong_number(found[0].profile, page)


@given(rows, rows, NASTY)
@fast
def test_rows_left_out_doubled_and_swapped(first: int, second: int, noise: str) -> None:
    table = TABLES["details"]
    a, b = (n % (len(table) - 1) + 1 for n in (first, second))
    shuffled = [*table]
    shuffled[a], shuffled[b] = shuffled[b], shuffled[a]
    for changed in (
        [line for i, line in enumerate(table) if i != a],
        [*table, table[a]],
        shuffled,
        [[noise], *table, [noise, noise]],
    ):
        found = read(written(changed))
        if found is not None:
            no_wrong_number(found[0].profile, "details")


@given(rows, st.integers(-(10**12), 10**12), st.integers(0, 6))
@fast
def test_thousands_separators_change_no_number(row: int, whole: int, digits: int) -> None:
    table = [list(line) for line in TABLES["details"]]
    numbers = [line for line in table[1:] if len(line) > 14 and line[12] == "Elapsed Cycles"]
    fraction = f"{0:.{digits}f}"[1:] if digits else ""
    numbers[0][14] = f"{whole:,}{fraction}"
    (found,) = parse_details(written(table))
    assert found.profile.get("gpc__cycles_elapsed.max") == whole


@given(st.text(max_size=400))
@fast
def test_any_text_at_all(text: str) -> None:
    read(text)
    read(TEXTS["details"].splitlines()[0] + "\n" + text)
    read("\n".join(TEXTS["raw"].splitlines()[:2]) + "\n" + text)


@given(st.text(max_size=600), st.sampled_from(["", "==ERROR== ", "==WARNING== ", "==PROF== "]))
@fast
def test_any_words_of_ncu(text: str, mark: str) -> None:
    found = classify_ncu_failure(mark + text)
    if found is not None:
        assert found.remedy == REMEDIES[found.cause]
        assert found.text.isprintable()
        assert 0 < len(found.text) <= 300


def test_a_line_of_units_left_out_is_noticed() -> None:
    header, _, first = TABLES["raw"]
    with pytest.raises(InputError, match="units"):
        parse_raw(written([header, first, first]))
