"""Whole searches with NVIDIA's real client against a local NIM: recipes and a model in one beam.

A product of 256 x 256: on a smaller one nothing beats the author's kernel by the model of an A10.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cudaops.certify.envelope import open_envelope
from cudaops.domain.certificate import Certificate
from cudaops.domain.judgement import Policy
from cudaops.domain.model_use import ModelCall
from cudaops.domain.options import Strategy
from cudaops.domain.run import Event, RunOptions, RunRecord
from cudaops.domain.search import Branch, SearchOptions
from cudaops.graph.branches import BranchTask
from cudaops.graph.events import read_events
from cudaops.graph.resolve_options import run_options, target
from cudaops.graph.run import resume, start
from cudaops.graph.toolbox import open_knowledge
from cudaops.models.journal import CallEntry
from cudaops.settings import load_settings
from tests.graph.beam_dialogue import (
    APART,
    BOTH,
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
from tests.graph.search_runs import announced, kept_branches
from tests.nim import Asked, Nim, Reply, Usage

pytestmark = [pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "naive_matmul.cu"
THREE = (WRONG, BROKEN, TWO)
LOOP = "for (int k = 0; k < N; ++k) {"
BACKWARDS = "for (int k = N; k-- > 0;) {"
"""A loop that no recipe understands."""
ROTATED = "for (int i = 0; i < N; ++i) {\n        const int k = (i + 4 * threadIdx.y) % N;"
"""One that none understands: what the next prompt says hangs on no tuner, which stops by the
clock."""


def program(folder: Path, loop: str = LOOP) -> Path:
    """The example at a quarter of its size, with its inner loop written like this."""
    path = folder / "naive_matmul.cu"
    text = EXAMPLE.read_text("utf-8")
    assert LOOP in text
    path.write_text(text.replace("const int N = 1024", "const int N = 256").replace(LOOP, loop))
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
    max_cost_usd: float | None = None,
) -> RunOptions:
    """Of a run that judges one candidate, with secret inputs that are always the same."""
    return run_options(
        source,
        source.parent / out,
        target("A10", None),
        optimizer="llm",
        model=Nim.model,
        search=SearchOptions(strategy=strategy, width=width, rounds=2),
        max_cost_usd=max_cost_usd,
        max_trials=1,  # a search over transformations ends by its trials, never by the clock
        use_memory=False,
        max_iterations=1,
        policy=Policy(min_speedup=1.2, seed=11),
    )


def run(options: RunOptions) -> Ran:
    folder = Path(options.out)
    record = start(options, lambda _: None, load_settings())
    return Ran(record, read_events(folder / "events.jsonl"), folder)


def test_a_models_hypotheses_in_one_round(tmp_path: Path, nim: Nim) -> None:
    dialogue = Dialogue(THREE, together=3)
    nim.answer_with(dialogue)
    ran = run(options_of(program(tmp_path, BACKWARDS), "run", "branch", 3))

    assert dialogue.most_at_once == 3
    by_title = {branch.title: branch for branch in ran.branches}
    assert [b.id for b in ran.branches] == list(range(3))
    assert Counter(b.order.kind for b in ran.branches) == {"seed": 3}
    wrong, broken, two = (by_title[t] for t in ("sampled", BROKEN.title, "two columns"))
    assert (wrong.family, wrong.time_us) == ("algorithm", None)
    assert str(wrong.failure).startswith("correctness_captured FAILED")
    assert (broken.family, broken.time_us) == ("coalescing", None)
    assert "pitch_of" in str(broken.failure)
    assert [b.title for b in ran.branches if b.time_us is not None] == ["two columns"]

    scopes = Counter((call.role, call.scope) for call in ran.calls)
    assert scopes == {
        ("planner", "01"): 1,
        **{("coder", f"01/b{branch.id}"): 1 for branch in (wrong, broken, two)},
        ("fixer", f"01/b{broken.id}"): 2,
        ("fixer", f"01/b{wrong.id}"): 2,
        ("reflector", "01"): 1,
    }
    _judged(ran, proposer="llm:test/chat", family="vector_loads", title="two columns")
    _told(ran)


@pytest.mark.deep
def test_a_beam_improves_and_joins_and_does_the_same_twice(tmp_path: Path, nim: Nim) -> None:
    source = program(tmp_path, ROTATED)
    ran: list[Ran] = []
    questions: list[Counter[str]] = []
    for out in ("first", "second"):
        nim.answer_with(Dialogue((TWO, APART), {"two_columns": (FOUR,)}, joined=BOTH))
        before = len(nim.chats)
        ran.append(run(options_of(source, out, "beam", 4)))
        questions.append(Counter(question(chat) for chat in nim.chats[before:]))
    first, second = ran
    assert [(b.order, b.title, b.time_us) for b in first.branches] == [
        (b.order, b.title, b.time_us) for b in second.branches
    ]
    # Those of one round are under way at once, so they may arrive in any order; nothing else may
    # differ, no time and no path.
    assert questions[0] == questions[1]
    assert set(questions[0].values()) == {1}

    by_title = {branch.title: branch for branch in first.branches}
    two, apart = by_title["two columns"], by_title["columns apart"]
    joined, child = by_title["vector loads and columns apart"], by_title["four columns"]
    kinds = Counter(branch.order.kind for branch in first.branches)
    assert kinds == {"recipe": 2, "seed": 2, "crossover": 1, "expand": 3}
    assert (two.order.kind, apart.order.kind) == ("seed", "seed")
    assert (joined.order.kind, joined.order.parents) == ("crossover", (two.id, apart.id))
    assert (child.order.kind, child.order.parents) == ("expand", (two.id,))
    assert (joined.family, child.family) == ("vector_loads", "vector_loads")
    scopes = {(call.role, call.scope) for call in first.calls}
    assert scopes >= {
        ("planner", "01"), ("planner", f"01/b{two.id}"), ("planner", f"01/b{apart.id}"),
        *(("coder", f"01/b{branch.id}") for branch in (two, apart, joined, child)),
        ("reflector", "01"),
    }  # fmt: skip
    assert {scope for role, scope in scopes if role == "coder"} <= {
        f"01/b{branch.id}" for branch in first.branches if branch.order.kind != "recipe"
    }
    _parents_are_shown(nim.chats[: len(nim.chats) // 2])
    best = min(two, child, key=lambda branch: branch.time_us or float("inf"))
    _judged(first, proposer="llm:test/chat", family="vector_loads", title=best.title)
    rounds = [e.data["round"] for e in first.events if "orders" in e.data]
    assert rounds == [0, 1]
    # A resumed run finds the parent's profile again: measured anew it would ask another question.
    diagnosed = {path.name: path for path in (first.folder / "state" / "diagnosed").iterdir()}
    assert set(diagnosed) == {f"01-b{two.id}.json", f"01-b{apart.id}.json"}
    for path in diagnosed.values():
        assert BranchTask.model_validate_json(path.read_text("utf-8")).verdict is not None


def _parents_are_shown(chats: list[Asked]) -> None:
    """Who improves a branch sees its text, its own verdict and what became of the others; who
    joins two sees both."""
    planners = [c.prompt for c in chats if role_of(c) == "planner"]
    shown = [prompt.partition("\n# The incumbent")[2] for prompt in planners]
    incumbent = next(text for text in shown if "void two_columns(" in text)
    assert re.search(r"b\d \[unrolling\] columns apart: \d+\.\d us \(draft\)", incumbent)
    by_title = {title_of(c): c for c in reversed(chats) if role_of(c) == "coder"}  # the first
    improving = task_of(by_title[FOUR.title])
    assert improving.startswith("Improve the rewrite below.")
    assert "void two_columns(" in improving
    assert "void apart(" not in improving
    joining = task_of(by_title["two columns with columns apart"])
    assert joining.startswith("Join the two rewrites below")
    assert joining.index("void two_columns(") < joining.index("void apart(")
    firsts = [by_title[idea.title] for idea in (TWO, APART)]
    assert not any("void two_columns(" in chat.prompt for chat in firsts)


@pytest.mark.deep
def test_money_ends_within_one_question_of_a_fan_out(tmp_path: Path, nim: Nim) -> None:
    dialogue = Dialogue(THREE, together=2, usage=lambda _: Usage(8_000, 0))
    nim.answer_with(dialogue)
    options = options_of(program(tmp_path), "run", "branch", 5, max_cost_usd=21.0)
    ran = run(options)

    # Eight dollars each, ten at worst by our own count: two fit beside the planner's, and a third
    # at once with them might have passed the limit by two questions.
    assert dialogue.most_at_once == 2
    use = ran.record.model
    assert use is not None
    assert use.cost_usd == pytest.approx(24.0)
    assert len(nim.chats) == use.calls == 3
    assert use.fell_back is not None
    assert "--max-cost" in use.fell_back
    assert [n for n in ran.record.notices if "recipes continue" in n] == [use.fell_back]
    told = [e for e in ran.events if e.kind == "notice" and "recipes continue" in e.message]
    assert len(told) == 1
    unpaid = [b for b in ran.branches if "--max-cost" in str(b.failure)]
    assert unpaid
    assert all(b.order.kind == "seed" and b.rewrite is None for b in unpaid)
    assert all(b.time_us is not None for b in ran.branches if b.order.kind == "recipe")
    (attempt,) = ran.record.attempts
    assert attempt.judgement.outcome == ran.record.outcome == "provisional"


@pytest.mark.deep
def test_a_fan_out_that_is_killed_goes_on_where_it_was(tmp_path: Path, nim: Nim) -> None:
    source = program(tmp_path, ROTATED)
    # The coder's answer was heard and compiled before the kill, the fixer's was not.
    fixed = FOUR._replace(coder=BROKEN.coder, fixer=FOUR.coder)
    dialogue = Dialogue((TWO, APART, fixed))
    reached, killed = threading.Event(), threading.Event()

    def hold_one(asked: Asked) -> Reply:
        if role_of(asked) == "fixer" and not killed.is_set():
            reached.set()
            killed.wait(300)
        return dialogue(asked)

    nim.answer_with(hold_one)
    folder = tmp_path / "run"
    words = ["run", str(source), "--model", nim.model, "--strategy", "branch", "--beam-width", "6"]
    words += [
        "--max-iterations",
        "1",
        "--max-trials",
        "1",
        "--seed",
        "11",
        "--no-memory",
        "--out",
        str(folder),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "cudaops", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 240
    while kept_branches(folder) < 5 or not reached.is_set():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    killed.set()
    # The killed process's share of the embedded server: whoever closes it last stops it.
    open_knowledge(load_settings()).close()
    before = announced(folder)
    left = set(range(6)) - set(before.elements())
    assert len(left) == 1

    record = resume(folder, lambda _: None, load_settings())
    ran = Ran(record, read_events(folder / "events.jsonl"), folder)
    assert announced(folder) - before == Counter(left)
    asked = Counter(question(chat) for chat in nim.chats)
    assert sorted(asked.values()) == [1] * 5 + [2]
    assert [role_of(c) for c in nim.chats if asked[question(c)] == 2] == ["fixer"] * 2
    assert ran.record.model is not None
    assert ran.record.model.calls == len(ran.calls) == len(asked)
    timed = [b for b in ran.branches if b.time_us is not None and b.rewrite is not None]
    best = min(timed, key=lambda branch: branch.time_us or float("inf"))
    _judged(ran, proposer="llm:test/chat", family="vector_loads", title=best.title)


@pytest.mark.deep
def test_recipes_go_on_where_the_model_vanishes(tmp_path: Path, nim: Nim) -> None:
    dialogue = Dialogue((TWO,))

    def answer_once(asked: Asked) -> Reply:
        nim.down = role_of(asked) == "coder"
        return dialogue(asked)

    nim.answer_with(answer_once)
    ran = run(options_of(program(tmp_path), "run", "beam", 2))
    kinds = [(b.order.round, b.order.kind, b.family) for b in ran.branches]
    assert kinds == [(0, "recipe", "tiling"), (0, "seed", "vector_loads")]
    assert all(b.time_us is not None for b in ran.branches)
    assert dialogue.asked == {"planner": 1, "coder": 1}
    (notice,) = [n for n in ran.record.notices if "recipes continue" in n]
    assert "503" in notice
    use = ran.record.model
    assert use is not None
    assert use.fell_back == notice
    failed = [call for call in ran.calls if call.outcome == "failed"]
    best = min(ran.branches, key=lambda branch: branch.time_us or float("inf"))
    lead = ("planner", f"01/b{best.id}", 6)
    assert [(call.role, call.scope, call.tries) for call in failed] == [lead]
    (attempt,) = ran.record.attempts
    assert attempt.title == best.title
    assert attempt.judgement.outcome == ran.record.outcome == "provisional"


def _judged(ran: Ran, *, proposer: str, family: str, title: str) -> None:
    """The run ends with this candidate, and its certificate says who wrote it."""
    (attempt,) = ran.record.attempts
    assert (attempt.title, attempt.proposer, attempt.family) == (title, proposer, family)
    assert attempt.judgement.outcome == ran.record.outcome == "provisional"
    assert attempt.lesson == "The loads were the limit."
    written = open_envelope((ran.folder / "certificate.json").read_bytes(), "it").record
    certificate = Certificate.model_validate(written)
    assert (certificate.candidate.proposer, certificate.candidate.title) == (proposer, title)
    use = ran.record.model
    assert use is not None
    assert use.calls == len(ran.calls)
    assert use.fell_back is None


def _told(ran: Ran) -> None:
    """The one round and its branches stand in the events, with their data."""
    rounds = [e.data for e in ran.events if "orders" in e.data]
    assert rounds == [
        {"search": 1, "round": 0, "orders": 3, "best_us": None, "time_source": "modelled"}
    ]
    told = {e.data["branch"]: e.data for e in ran.events if "branch" in e.data}
    assert sorted(told) == list(range(3))
    for branch in ran.branches:
        data = told[branch.id]
        assert (data["family"], data["time_us"]) == (branch.family, branch.time_us)
        assert (data["search"], data["round"], data["parents"]) == (1, 0, [])
        assert data["time_source"] == "modelled"
    assert not any(e.kind == "failed" for e in ran.events)
