"""`--review`: a run stops before acceptance, shows the evidence, and goes on with the answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cudaops.domain.evaluation import Evaluation
from cudaops.domain.judgement import Gate, Policy
from cudaops.domain.run import ReviewAnswer, ReviewRequest, RunRecord
from cudaops.graph.events import read_events
from cudaops.graph.nodes import answered
from cudaops.program.plans import make_rewrite
from cudaops.reports.terminal import review_text

PROGRAM = Path(__file__).parents[1] / "data" / "programs" / "gemm_header.cu"
WAITING = 4


def cudaops(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cudaops", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


def test_a_run_waits_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    """No, then yes: the refused candidate is an attempt like any other, the next one is asked for
    again. Without a terminal the run ends each time, and nothing that was done is lost."""
    folder = tmp_path / "run"
    size = ("--", "256", "256", "256")
    asked = cudaops(
        "run",
        str(PROGRAM),
        "--review",
        "--max-iterations",
        "2",
        "--max-trials",
        "2",
        "--out",
        str(folder),
        *size,
    )
    assert asked.returncode == WAITING, asked.stderr
    assert "+++" in asked.stderr, "the patch is shown"
    assert "correctness_perturbed passed" in asked.stderr
    assert "--yes (or --no" in asked.stderr
    assert not (folder / "best.cu").exists()
    assert not (folder / "run.json").exists()

    still = cudaops("resume", str(folder))
    assert still.returncode == WAITING, "resuming without an answer asks again"
    no = cudaops("resume", str(folder), "--no", "--note", "too hard to read")
    attempt = json.loads((folder / "iterations" / "01" / "attempt.json").read_text())
    assert attempt["judgement"]["outcome"] == "rejected"
    assert "too hard to read" in attempt["lesson"]
    assert attempt["judgement"]["gates"][-1]["name"] == "review"
    if no.returncode == WAITING:  # there was another proposal
        yes = cudaops("resume", str(folder), "--yes", "--json")
        assert yes.returncode == 0, yes.stderr
        record = RunRecord.model_validate_json(yes.stdout)
        assert record.outcome == "provisional"
        assert record.judgement is not None
        review = record.judgement.gate("review")
        assert review is not None
        assert review.passed
        assert (folder / "best.cu").exists()
    else:
        assert no.returncode == 1, no.stderr
    events = read_events(folder / "events.jsonl")
    assert not [e for e in events if e.kind == "failed"], "waiting is no failure"


@pytest.mark.deep
def test_a_yes_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ("--review", "--max-iterations", "1", "--max-trials", "2", "--out", str(folder))
    assert cudaops("run", str(PROGRAM), *options, "--", "256", "256", "256").returncode == WAITING
    yes = cudaops("resume", str(folder), "--yes", "--json")
    assert yes.returncode == 0, yes.stderr
    record = RunRecord.model_validate_json(yes.stdout)
    assert record.judgement is not None
    assert [g.name for g in record.judgement.gates][-2:] == ["review", "speedup"]


def test_a_note_needs_an_answer(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    done = cudaops("resume", str(tmp_path), "--note", "why")
    assert done.returncode == 2
    assert "--yes or --no" in done.stderr


SOURCE = "// @launch k grid=(1) block=(1) args=()\n__global__ void k() {}\n"
HELD = Gate(name="object", passed=False, quarantined=True, summary="reads the clock")


@pytest.mark.parametrize("accept", [True, False])
def test_the_answer_becomes_a_gate(accept: bool) -> None:
    rewrite = make_rewrite(SOURCE, proposer="test", title="test", why="test")
    evaluation = Evaluation(rewrite=rewrite, gates=(HELD,))
    answer = ReviewAnswer(accept=accept, by="ada", note="I read it")
    reviewed, judgement = answered(evaluation, Policy(review=True), answer)
    gate = reviewed.gates[-1]
    assert (gate.name, gate.passed) == ("review", accept)
    assert "ada" in gate.summary
    assert "I read it" in gate.summary
    assert ("releases object" in gate.summary) == accept
    assert judgement.outcome == "rejected", "a yes replaces no gate that did not run"


def test_what_a_person_is_shown() -> None:
    request = ReviewRequest(
        title="tiles",
        proposer="recipe:matmul",
        why="L1 bound",
        outcome="accepted",
        reason="6.11x, threshold 1.20x",
        speedup=6.11,
        time_source="cuda_event",
        gates=("repeat passed: ten launches agree",),
        quarantined=(HELD.line,),
        patch="--- a.cu\n+++ b.cu\n",
    )
    text = review_text(request)
    for part in ("+++ b.cu", "ten launches agree", "releases", "reads the clock", "6.11x"):
        assert part in text
