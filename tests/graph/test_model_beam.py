"""Whole searches with NVIDIA's real client against a local NIM: recipes and a model in one beam.

A product of 256 x 256: on a smaller one nothing beats the author's kernel by the model of an A10.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from cudaops.certify.envelope import open_envelope
from cudaops.cli_models import Proposing
from cudaops.cli_runs import run_options, target
from cudaops.domain.certificate import Certificate
from cudaops.domain.judgement import Policy
from cudaops.domain.model_use import ModelCall
from cudaops.domain.run import Event, RunOptions, RunRecord
from cudaops.domain.search import Branch, SearchOptions, Strategy
from cudaops.graph.events import read_events
from cudaops.graph.run import start
from cudaops.graph.services import open_knowledge
from cudaops.models.journal import CallEntry
from cudaops.settings import load_settings
from tests.graph.beam_dialogue import (
    APART,
    BROKEN,
    FOUR,
    TWO,
    WRONG,
    Dialogue,
    question,
    role_of,
    task_of,
    title_of,
)
from tests.nim import Asked, Nim, Reply, Usage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "naive_matmul.cu"
FIVE = (WRONG, BROKEN, TWO)
"""Beside the two recipes: a round of five."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "naive_matmul.cu"
    text = EXAMPLE.read_text("utf-8")
    path.write_text(text.replace("const int N = 1024", "const int N = 256"), "utf-8")
    return path


@pytest.fixture
def nim(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nim]:
    """A server, and an environment that leads to it."""
    with Nim() as server:
        monkeypatch.setenv("NVIDIA_BASE_URL", server.url)
        monkeypatch.setenv("NVIDIA_API_KEY", str(server.key))
        monkeypatch.setenv("CUDAOPS_MODEL_PRICE", "1000,0")
        yield server


class Ran(NamedTuple):
    """What a run left behind."""

    record: RunRecord
    events: list[Event]
    folder: Path

    @property
    def branches(self) -> list[Branch]:
        """Of its first search, in order."""
        kept = json.loads((self.folder / "search" / "01.json").read_text("utf-8"))
        return [Branch.model_validate(branch) for branch in kept]

    @property
    def calls(self) -> list[ModelCall]:
        """As the journal has them."""
        paths = sorted((self.folder / "state" / "calls").glob("*.json"))
        texts = [path.read_text("utf-8") for path in paths if not path.name.endswith("-tool.json")]
        return [CallEntry.model_validate_json(text).call for text in texts]


def options_of(
    source: Path,
    out: str,
    strategy: Strategy,
    width: int,
    *,
    rounds: int = 2,
    max_cost_usd: float | None = None,
) -> RunOptions:
    """Of a run that judges one candidate, with secret inputs that are always the same."""
    return run_options(
        source,
        source.parent / out,
        target("A10", None),
        proposing=Proposing(
            "llm",
            Nim.model,
            SearchOptions(strategy=strategy, width=width, rounds=rounds),
            max_cost_usd=max_cost_usd,
            use_memory=False,
        ),
        max_iterations=1,
        policy=Policy(min_speedup=1.2, seed=11),
    )


def run(options: RunOptions) -> Ran:
    folder = Path(options.out)
    record = start(options, lambda _: None, load_settings())
    return Ran(record, read_events(folder / "events.jsonl"), folder)


def test_recipes_and_a_model_in_one_round(source: Path, nim: Nim) -> None:
    dialogue = Dialogue(FIVE, together=3)
    nim.answer_with(dialogue)
    ran = run(options_of(source, "run", "branch", 5))

    assert dialogue.most_at_once == 3
    by_title = {branch.title: branch for branch in ran.branches}
    assert [b.id for b in ran.branches] == list(range(5))
    assert Counter(b.order.kind for b in ran.branches) == {"recipe": 2, "seed": 3}
    wrong, broken, two = (by_title[t] for t in ("sampled", _first_title(BROKEN), "two columns"))
    assert (wrong.family, wrong.time_us) == ("algorithm", None)
    assert str(wrong.failure).startswith("correctness_captured FAILED")
    assert (broken.family, broken.time_us) == ("coalescing", None)
    assert "pitch_of" in str(broken.failure)
    timed = {b.title: b.time_us for b in ran.branches if b.time_us is not None}
    assert len(timed) == 3
    assert min(timed, key=timed.__getitem__) == "two columns"
    assert all(b.order.hypothesis is None for b in ran.branches if b.order.kind == "recipe")

    scopes = Counter((call.role, call.scope) for call in ran.calls)
    assert scopes == {
        ("planner", "01"): 1,
        **{("coder", f"01/b{branch.id}"): 1 for branch in (wrong, broken, two)},
        ("fixer", f"01/b{broken.id}"): 2,
        ("reflector", "01"): 1,
    }
    _judged(ran, proposer="llm:test/chat", family="vector_loads", title="two columns")
    _told(ran)


def _first_title(idea: object) -> str:
    """The title that its coder's answer bears."""
    return str(BROKEN.coder.partition("TITLE: ")[2].partition("\n")[0])


def _judged(ran: Ran, *, proposer: str, family: str, title: str) -> None:
    (attempt,) = ran.record.attempts
    assert (attempt.title, attempt.proposer, attempt.family) == (title, proposer, family)
    assert attempt.judgement.outcome == "provisional"
    assert ran.record.outcome == "provisional"
    assert attempt.lesson == "The loads were the limit."
    signed = open_envelope((ran.folder / "certificate.json").read_bytes(), "it")
    certificate = Certificate.model_validate(signed.record)
    assert (certificate.candidate.proposer, certificate.candidate.title) == (proposer, title)
    use = ran.record.model
    assert use is not None
    assert use.calls == len(ran.calls)
    assert use.fell_back is None


def _told(ran: Ran) -> None:
    """Rounds and branches stand in the events, with their data."""
    rounds = [e.data for e in ran.events if e.stage == "gather" and "round" in e.data]
    assert rounds == [
        {"search": 1, "round": 0, "orders": 5, "best_us": None, "time_source": "modelled"}
    ]
    told = {
        e.data["branch"]: e.data for e in ran.events if e.stage == "explore" and "branch" in e.data
    }
    assert sorted(told) == list(range(5))
    for branch in ran.branches:
        data = told[branch.id]
        assert data["family"] == branch.family
        assert data["time_us"] == branch.time_us
        assert (data["search"], data["round"], data["parents"]) == (1, 0, [])
        assert data["time_source"] == "modelled"
    assert not any(e.kind == "failed" for e in ran.events)
