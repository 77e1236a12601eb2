"""The HTML report in a real Chromium: nothing asked for, nothing wider than the page, readable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from cudaops.graph.html_report import html_report
from cudaops.reports import html
from tests.reports import records

if TYPE_CHECKING:
    from tests.browser import OpenPage

pytest_plugins = ["tests.browser"]
ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "examples" / "recorded"
HOSTILE = (
    "</style><script>document.title='taken'</script><img src=x onerror=\"document.title='x'\">"
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_nothing_is_wrong_with_a_report(
    open_page: OpenPage, tmp_path: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    file = tmp_path / "report.html"
    file.write_text(html_report(RECORDED / "dialogues" / "invert8"), encoding="utf-8")
    opened = open_page(file, width=width, scheme=scheme)
    # What is folded is looked at too.
    opened.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert opened.problems == []
    assert opened.requests == [file.as_uri()]
    assert not opened.scrolls_sideways()
    assert opened.violations() == []


def test_it_needs_no_script_and_takes_none(open_page: OpenPage, tmp_path: Path) -> None:
    record = records.provisional()
    assert record.best is not None
    best = record.best.model_copy(update={"title": HOSTILE, "source": HOSTILE})
    file = tmp_path / "report.html"
    file.write_text(
        html.document(record.model_copy(update={"best": best, "notices": (HOSTILE,)}), ()),
        encoding="utf-8",
    )
    opened = open_page(file, javascript=False)
    assert opened.page.locator("svg[role=img]").count() >= 3
    opened.page.locator("#r-gates ~ details > summary").first.click()
    with_script = open_page(file)
    assert with_script.page.title() == "naive_matmul: provisional · cudaops"
    assert with_script.problems == []
    # Its policy refuses a script that somebody adds to the file later.
    added = tmp_path / "added.html"
    added.write_text(
        file.read_text("utf-8").replace("</main>", "<script>document.title='taken'</script></main>")
    )
    assert open_page(added).page.title() == "naive_matmul: provisional · cudaops"


def test_on_paper_no_table_is_cut(open_page: OpenPage, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(
        html_report(ROOT / "tests" / "data" / "recorded" / "naive_matmul"), encoding="utf-8"
    )
    opened = open_page(file, width=680)
    opened.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    opened.page.emulate_media(media="print", color_scheme="dark")
    ground = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    assert not opened.scrolls_sideways(), "a sheet has no scroll bar"
