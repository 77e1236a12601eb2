"""The graph as a search: what is explored, what is judged, and what a kill costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from cudaops.domain.search import SearchOptions
from cudaops.graph.branches import Explored
from cudaops.graph.toolbox import open_knowledge
from cudaops.settings import load_settings
from tests.graph.search_runs import (
    FIRST,
    MM,
    Idea,
    Shelf,
    announced,
    kept_branches,
    killed_run,
    options_of,
    run,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "naive_matmul.cu"


def fastest(explored: Sequence[Explored]) -> str:
    """Which it is follows from the model of time, and is not what is tested here."""
    timed = {e.branch.time_us: e.branch.title for e in explored if e.branch.time_us is not None}
    return timed[min(timed)]


@pytest.fixture(scope="module")
def smaller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example at a quarter of its size."""
    path = tmp_path_factory.mktemp("program") / "naive_matmul.cu"
    path.write_text(EXAMPLE.read_text().replace("const int N = 1024", "const int N = 256"))
    return path


@pytest.mark.timeout(900)
@pytest.mark.deep
def test_recipes_alone_do_as_well_as_greedy(smaller: Path, tmp_path: Path) -> None:
    """No model: the one recipe that applies is explored, judged and kept."""
    found = {}
    for strategy in ("greedy", "branch", "beam"):
        search = SearchOptions.model_validate({"strategy": strategy})
        found[strategy] = run(options_of(smaller, tmp_path / strategy, search, bar=1.2))
        assert found[strategy].judged[0][1] == "provisional"
    for strategy in ("branch", "beam"):
        ran = found[strategy]
        assert ran.best >= found["greedy"].best * 0.999
        assert [e.branch.family for e in ran.explored] == ["tiling"]
        assert all(e.branch.time_us is not None for e in ran.explored)
        assert (tmp_path / strategy / "search" / "01.json").stat().st_size > 0
        lines = [e for e in ran.events if e.stage == "explore" and "branch" in e.data]
        assert {e.data["branch"] for e in lines} == {0}
        assert all({"round", "family", "time_us"} <= set(e.data) for e in lines)
        assert ran.state["seconds_by_stage"]["explore"] > 0


@pytest.mark.deep
def test_a_fast_and_wrong_branch_does_not_lead(tmp_path: Path) -> None:
    developer = Shelf(FIRST)
    search = SearchOptions(strategy="branch", width=5)
    ran = run(options_of(MM, tmp_path / "run", search), developer)
    by_title = {e.branch.title: e.branch for e in ran.explored}
    assert len(by_title) == 5
    wrong = by_title["samples_the_sum"]
    assert wrong.time_us is None
    assert str(wrong.failure).startswith("correctness_captured FAILED")
    assert str(by_title["does_not_compile"].failure).startswith("compile FAILED")
    assert ran.judged == [(fastest(ran.explored), "provisional")]
    assert developer.calls[0] == "plan 01 5"
    recipe = "shared-memory and register tiling"
    written = sorted(f"01/b{b.id}" for title, b in by_title.items() if title != recipe)
    assert sorted(c.split()[1] for c in developer.calls[1:]) == written
    assert len(written) == 4
    assert developer.most_at_work > 1


def test_after_a_rejection_the_next_best_is_judged(tmp_path: Path) -> None:
    """The fastest passes the screening and is wrong on other inputs."""
    ideas = (*FIRST, Idea("other", "periodic"))
    options = options_of(
        MM, tmp_path / "run", SearchOptions(strategy="branch", width=6), max_iterations=2
    )
    ran = run(options, Shelf(ideas))
    right = [e for e in ran.explored if e.branch.title != "periodic"]
    assert ran.judged == [("periodic", "rejected"), (fastest(right), "provisional")]
    assert ran.state["attempts"][0]["judgement"]["gates"][-1]["name"] == "correctness_exact"
    assert ran.state["search"]["number"] == 1


@pytest.mark.deep
def test_a_new_search_begins_where_no_other_branch_beats_the_bar(tmp_path: Path) -> None:
    ideas = (Idea("other", "periodic"), Idea("reduction", "honest/pairwise_sum"))
    more = (Idea("unrolling", "honest/two_accumulators"),)
    options = options_of(
        MM, tmp_path / "run", SearchOptions(strategy="branch", width=3), max_iterations=2, bar=1.3
    )
    developer = Shelf((*ideas, *more))
    ran = run(options, developer)
    # 1.36 by the clock of the search, then 1.27 at best: only a new search has another candidate.
    assert ran.judged[0] == ("periodic", "rejected")
    assert [c for c in developer.calls if c.startswith("plan")] == ["plan 01 3", "plan 02 3"]
    assert ran.state["search"]["number"] == 2
    later = {e.branch.title for e in ran.explored if e.search == 2}
    assert {title for title, _ in ran.judged[1:]} <= later


def test_a_beam_breeds_what_beats_its_parent(tmp_path: Path) -> None:
    first = (Idea("reduction", "honest/pairwise_sum"), Idea("tiling", "honest/shared_tiles"))
    ideas = [Idea("reduction", "periodic"), Idea("other", "writes_zeros")]
    leads = ("shared-memory and register tiling", *(idea.name for idea in first))
    developer = Shelf(first, dict.fromkeys(leads, ideas))
    search = SearchOptions(strategy="beam", width=4, rounds=3)
    ran = run(options_of(MM, tmp_path / "run", search, max_iterations=2), developer)
    explored = {e.branch.id: e.branch for e in ran.explored if e.search == 1}
    lead = fastest([e for e in ran.explored if e.search == 1 and e.branch.order.round == 0])
    parent = next(b.id for b in explored.values() if b.title == lead)
    children = [b for b in explored.values() if b.order.parents == (parent,)]
    assert [b.title for b in children] == ["periodic", "writes_zeros"]
    assert [b.time_us is None for b in children] == [False, True]
    assert any(b.order.kind == "crossover" for b in explored.values())
    planned = developer.views[f"plan 01/b{parent}"][0]
    assert planned.incumbent is not None
    assert planned.incumbent.title == lead
    assert len(planned.explored) == 3
    assert planned.profile != developer.views["plan 01"][0].profile
    assert ran.judged[0] == ("periodic", "rejected")
    assert ran.judged[1] == (lead, "provisional")


@pytest.mark.parametrize("gone_after", [0, 1])
@pytest.mark.deep
def test_recipes_go_on_where_the_model_is_gone(tmp_path: Path, gone_after: int) -> None:
    developer = Shelf(FIRST, gone_after=gone_after)
    search = SearchOptions(strategy="beam", width=4)
    ran = run(options_of(MM, tmp_path / "run", search), developer)
    assert ran.judged[0][1] == "provisional"
    assert len([n for n in ran.state["notices"] if "nobody answers" in n]) == 1
    assert sum(c.startswith("plan") for c in developer.calls) == 1
    titles = {e.branch.title for e in ran.explored if e.branch.time_us is not None}
    assert "shared-memory and register tiling" in titles
    if gone_after:
        failed = [e.branch for e in ran.explored if e.unavailable]
        assert {b.failure for b in failed} == {"nobody answers; ask again later"}


@pytest.mark.deep
def test_a_beam_whose_model_is_gone_judges_what_it_has(tmp_path: Path) -> None:
    """Two are written; nobody can be asked how to improve the better one."""
    first = (Idea("reduction", "honest/pairwise_sum"), Idea("tiling", "honest/shared_tiles"))
    developer = Shelf(first, gone_after=2)
    search = SearchOptions(strategy="beam", width=4)
    ran = run(options_of(MM, tmp_path / "run", search), developer)
    assert ran.judged == [(fastest(ran.explored), "provisional")]
    assert [c.split()[0] for c in developer.calls].count("write") == 2
    assert len([n for n in ran.state["notices"] if "nobody answers" in n]) == 1
    assert {e.branch.order.round for e in ran.explored} == {0}


def test_what_a_killed_run_explored_is_not_explored_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.graph.search_runs", str(folder)], start_new_session=True
    )
    deadline = time.monotonic() + 240
    while kept_branches(folder) < 2:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # The killed process's share of the embedded server: whoever closes it last stops it.
    open_knowledge(load_settings()).close()
    kept = kept_branches(folder)
    before = announced(folder)
    assert kept < 5

    options, developer = killed_run(folder)
    ran = run(options, developer)
    assert ran.judged == [(fastest(ran.explored), "provisional")]
    assert sorted(e.branch.id for e in ran.explored) == list(range(5))
    again = announced(folder) - before
    assert set(before) | set(again) == set(range(5))
    assert sum(again.values()) <= 5 - kept
    written = Counter((tmp_path / "calls.txt").read_text().splitlines())
    plans = [call for call in written if call.startswith("plan")]
    assert plans == ["plan 01 5"]
    assert written[plans[0]] == 1
