"""The page that the service serves, in a real browser, against the real service and worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest
from playwright.sync_api import expect
from psycopg.conninfo import make_conninfo

from cudaops.rag.embedded import EmbeddedServer
from cudaops.service.records import EXAMPLES

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser import Opened, OpenPage

pytest_plugins = ["tests.browser"]

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "cudaops" / "service" / "static"
PROGRAMS = ROOT / "tests" / "data" / "programs"
EXAMPLE = ROOT / "examples" / "naive_matmul.cu"
PATIENCE_MS = 240_000
"""For whatever a loaded machine may take long for."""
ADMIN = "a-token-of-the-test-and-of-nothing-else"

Start = Callable[..., str]


@pytest.fixture(scope="module")
def start(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts `cudaops serve` on the module's own database; gives its address."""
    folder = tmp_path_factory.mktemp("service")
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("CREATE DATABASE page")
    surroundings = os.environ | {
        "DATABASE_URL": make_conninfo(server.conninfo, dbname="page"),
        "CUDAOPS_SERVICE_FOLDER": str(folder / "jobs"),
    }
    with ExitStack() as started:

        def start_one(workers: int, **environment: str) -> str:
            options = ["--port", "0", "--workers", str(workers), "--executor", "cpu"]
            process = subprocess.Popen(
                [sys.executable, "-m", "cudaops", "serve", *options],
                cwd=folder,
                env=surroundings | environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            started.callback(_stop, process)
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, line
            return found[0]

        yield start_one


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=60)


@pytest.fixture(scope="module")
def address(start: Start) -> str:
    """A service with one worker, which asks for no token."""
    return start(1)


def submit(address: str, kind: str, source: str, **options: Any) -> str:
    """The id of a new job."""
    body = {"source": (PROGRAMS / source).read_text("utf-8"), "filename": source, **options}
    answer = httpx.post(f"{address}/{kind}", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def ended(page: Page) -> None:
    """Wait until the job has ended and all of it is drawn."""
    page.wait_for_selector("[data-complete=true]", timeout=PATIENCE_MS)


def unexpected(opened: Opened) -> list[str]:
    """What went wrong, but for requests that ended because the page was left or loaded again."""
    return [problem for problem in opened.problems if "ERR_ABORTED" not in problem]


def clean(opened: Opened) -> None:
    """Accessible in both themes, and no wider than the window."""
    for scheme in ("light", "dark"):
        opened.page.emulate_media(color_scheme=scheme)
        assert opened.violations() == []
    opened.page.set_viewport_size({"width": 360, "height": 740})
    assert not opened.scrolls_sideways()
    assert opened.violations() == []
    opened.page.set_viewport_size({"width": 1280, "height": 900})


def test_the_example_is_the_one_of_the_examples() -> None:
    name = "naive_matmul.cu"
    assert (STATIC / name).read_bytes() == (ROOT / "examples" / name).read_bytes()


def test_nothing_is_written_into_the_page_that_its_policy_forbids() -> None:
    for path in STATIC.glob("*.html"):
        text = path.read_text("utf-8")
        assert not re.search(r"<style|\son\w+=|\sstyle=|<script(?![^>]*\ssrc=)", text)
    for path in STATIC.glob("*.js"):
        text = path.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert "https://" not in text, path.name


@pytest.mark.timeout(900)
def test_a_run_is_watched_from_start_to_end(address: str, open_page: OpenPage) -> None:
    opened = open_page(address)
    page = opened.page
    # By keyboard alone: past the skip link and the name to the form, and what it wants.
    page.wait_for_selector("text=No job yet.", timeout=PATIENCE_MS)
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "New job"
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:focus")
    page.focus("textarea[name=source]")
    text = EXAMPLE.read_text("utf-8").replace("const int N = 1024", "const int N = 256")
    page.keyboard.insert_text(text)
    page.fill("input[name=filename]", "naive_matmul.cu")
    page.select_option("select[name=executor]", "cpu")
    page.select_option("select[name=optimizer]", "recipes")
    page.fill("input[name=max_iterations]", "1")
    page.fill("input[name=min_speedup]", "1.05")
    page.fill("input[name=argv]", "512 512")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("#/jobs/"), timeout=PATIENCE_MS)
    page.wait_for_selector(".agent[data-state=working]", timeout=PATIENCE_MS)
    clean(opened)

    page.wait_for_selector("text=What limits it", timeout=PATIENCE_MS)
    assert "modelled for A10" in page.inner_text("section[aria-labelledby=verdict-title]")
    page.reload()
    page.wait_for_selector("text=What limits it", timeout=PATIENCE_MS)

    assert unexpected(opened) == []
    page.context.set_offline(True)
    page.wait_for_selector("text=Connection lost", timeout=PATIENCE_MS)
    page.context.set_offline(False)
    page.wait_for_selector(".connection[data-state=live]", state="attached", timeout=PATIENCE_MS)
    opened.problems.clear()  # the connection was lost, as it should

    page.wait_for_selector("table.candidates tbody tr", timeout=PATIENCE_MS)
    assert page.locator("svg.chart[role=img]").count() == 1
    page.wait_for_selector("text=hygiene", timeout=PATIENCE_MS)
    ended(page)
    assert unexpected(opened) == []
    _all_of_it_is_there(address, page)
    clean(opened)
    _the_way_back_and_forth(opened)


def _all_of_it_is_there(address: str, page: Page) -> None:
    id = page.url.rsplit("/", 1)[1]
    job = httpx.get(f"{address}/jobs/{id}").json()
    assert job["status"] == "succeeded"
    assert job["outcome"] == "provisional", job["result"]["reason"]
    headings = page.locator("h2").all_inner_texts()
    for section in ("Agents", "What limits it", "Candidates", "Gates in order", "Files", "Log"):
        assert section in headings
    assert page.locator(".r-report svg").count() > 0
    assert page.locator("[style]").count() == 0
    # Neither the reload nor the lost connection has lost or doubled an event.
    told = [line for line in _events(address, id) if line.startswith("id: ")]
    assert page.locator("table.log tbody tr").count() == len(told)
    attempt = job["result"]["attempts"][0]
    first = page.locator("section[aria-labelledby=gates-title] details").first
    assert first.locator("li").count() == len(attempt["judgement"]["gates"])
    assert attempt["title"] in page.inner_text("table.candidates")
    with page.expect_download() as download:
        page.click("table.artefacts a:text-is('best.patch')")
    assert "+++" in download.value.path().read_text("utf-8")


def _events(address: str, id: str) -> list[str]:
    return httpx.get(f"{address}/jobs/{id}/events", timeout=60).text.splitlines()


def _the_way_back_and_forth(opened: Opened) -> None:
    page, here = opened.page, opened.page.url
    page.click("nav >> text=Jobs")
    page.wait_for_selector("table.jobs tbody tr")
    assert "naive_matmul.cu" in page.inner_text("table.jobs")
    page.fill("input[type=search]", "no such kernel")
    page.wait_for_selector("text=0 of 1 shown")
    page.go_back()
    ended(page)
    assert page.url == here
    assert page.evaluate("document.activeElement.tagName") == "H1"
    page.goto("about:blank")
    page.goto(here)
    ended(page)
    assert page.locator(".r-report").count() == 1
    assert unexpected(opened) == []


def test_list_and_form_are_accessible_and_errors_lose_nothing(
    address: str, open_page: OpenPage
) -> None:
    opened = open_page(address)
    page = opened.page
    page.wait_for_selector("main h1")
    clean(opened)
    page.goto(f"{address}/#/new")
    clean(opened)
    page.click("text=Try the example")
    expect(page.locator("textarea[name=source]")).to_have_value(re.compile("__global__"))
    page.fill("input[name=kernel]", "not a name")
    page.fill("input[name=max_iterations]", "2")
    assert unexpected(opened) == []
    page.click("button[type=submit].main")
    problem = page.wait_for_selector("[role=alert]", timeout=PATIENCE_MS)
    assert problem is not None
    assert "kernel" in problem.inner_text()
    assert page.get_attribute("input[name=kernel]", "aria-invalid") == "true"
    assert opened.violations() == []
    page.reload()
    page.wait_for_selector("textarea")
    assert "__global__" in page.input_value("textarea[name=source]")
    assert page.input_value("input[name=max_iterations]") == "2"
    page.goto(f"{address}/#/jobs/00000000-0000-4000-8000-000000000000")
    page.wait_for_selector("h1:text('No such job')")
    page.click("#theme-button")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.reload()
    assert page.inner_text("#theme-button") == "Theme: light"


def test_a_job_is_cancelled_by_keyboard(address: str, open_page: OpenPage) -> None:
    id = submit(address, "run", "never_ends.cu", executor="cpu", timeout_seconds=600)
    opened = open_page(f"{address}/#/jobs/{id}")
    page = opened.page
    page.wait_for_selector(".badge.running", timeout=PATIENCE_MS)
    page.focus("button.danger")
    page.keyboard.press("Enter")
    page.wait_for_selector(".badge.cancelled", timeout=PATIENCE_MS)
    assert not page.is_visible("button.danger")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    assert unexpected(opened) == []


@pytest.mark.parametrize(
    ("kind", "source", "shown"),
    [
        ("run", "vector_add.cu", "It ended with exit code 0"),
        ("compile", "vector_add.cu", "It compiles"),
        ("compile", "syntax_error.cu", "syntax_error.cu"),
        ("profile", "vector_add.cu", "modelled for A10"),
        ("benchmark", "vector_add.cu", "modelled for A10"),
    ],
)
def test_what_came_of_a_smaller_job_is_read(
    address: str, open_page: OpenPage, kind: str, source: str, shown: str
) -> None:
    id = submit(address, kind, source, executor="cpu")
    opened = open_page(f"{address}/#/jobs/{id}", width=360, height=740, scheme="dark")
    ended(opened.page)
    assert shown in opened.page.inner_text("main")
    assert opened.violations() == []
    assert not opened.scrolls_sideways()
    assert unexpected(opened) == []


@pytest.mark.timeout(900)
def test_what_a_job_kept_is_judged_again(address: str, open_page: OpenPage) -> None:
    body = EXAMPLES["optimize"]["recipes"]["value"]
    answer = httpx.post(f"{address}/optimize", json=body)
    first = str(answer.json()["id"])
    opened = open_page(f"{address}/#/jobs/{first}")
    ended(opened.page)
    button = opened.page.get_by_role("button", name="Judge it again")
    button.focus()
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_function("id => !location.hash.endsWith(id)", arg=first)
    ended(opened.page)
    second = opened.page.url.rsplit("/", 1)[1]
    assert second != first
    record = httpx.get(f"{address}/jobs/{second}").json()
    assert (record["kind"], record["outcome"]) == ("verify", "provisional")
    assert button.is_visible(), "and so on"
    clean(opened)
    assert unexpected(opened) == []


def test_a_token_is_asked_for_and_kept_in_the_tab_alone(
    address: str, start: Start, open_page: OpenPage
) -> None:
    id = submit(address, "run", "vector_add.cu", executor="cpu")
    guarded = start(0, CUDAOPS_ADMIN_TOKEN=ADMIN)
    opened = open_page(f"{guarded}/#/jobs/{id}")
    page = opened.page
    page.wait_for_selector("dialog[open]")
    assert opened.violations() == []
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=does not know this token")
    page.keyboard.type(ADMIN)
    page.keyboard.press("Enter")
    ended(page)
    with page.expect_download() as download:
        page.click("table.artefacts a >> nth=0")
    assert download.value.path().stat().st_size > 0
    assert ADMIN not in page.evaluate("JSON.stringify({...localStorage})")
    assert ADMIN not in page.content()
    assert all(ADMIN not in request for request in opened.requests)
    page.reload()
    ended(page)
    assert {p for p in unexpected(opened) if "401" not in p} == set()
    page.click("#token-button")
    page.click("#token-forget")
    page.goto(f"{guarded}/#/")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("[role=alert]:has-text('token')")
