"""Money and calls in whole runs: the limit holds to within one call, a kill is not paid for twice,
and with no key the run goes on with recipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.domain.run import RunRecord
from cudaops.graph.toolbox import open_knowledge
from cudaops.models.scripted import read_script
from cudaops.settings import load_settings
from tests.nim import Asked, Nim, Reply, Usage

EXAMPLES = Path(__file__).parents[2] / "examples"
ANSWERS = read_script(EXAMPLES / "scripts" / "naive_matmul.json").answers
PLAN, WINNER = ANSWERS[0].text, ANSWERS[-2].text


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A product of 128 x 128: seconds a run."""
    path = tmp_path / "naive_matmul.cu"
    text = (EXAMPLES / "naive_matmul.cu").read_text("utf-8")
    path.write_text(text.replace("N = 1024", "N = 128"), "utf-8")
    return path


@pytest.fixture
def nim() -> Iterator[Nim]:
    """A server that goes on answering: a plan, then always the same good kernel."""
    with Nim() as server:
        server.answer_with(answer)
        yield server


def answer(asked: Asked) -> Reply:
    """Every answer takes 6,000 tokens in and 100 out, by the server's own count."""
    task = str(asked.messages[-1]["content"])
    usage = Usage(6000, 100)
    if "hypotheses" in task:
        return Reply(PLAN, usage=usage)
    return Reply(WINNER if "```" in task or "cuda" in task else "Nothing new.", usage=usage)


def command(source: Path, nim: Nim, *more: str) -> tuple[list[str], dict[str, str]]:
    environment = {
        **os.environ,
        "NVIDIA_BASE_URL": nim.url,
        "NVIDIA_API_KEY": str(nim.key),
        "CUDAOPS_MODEL_PRICE": "1000,0",
    }
    words = [sys.executable, "-m", "cudaops", "run", str(source), "--model", nim.model]
    return [*words, "--out", str(source.parent / "run"), *more], environment


def record_of(source: Path) -> RunRecord:
    return RunRecord.model_validate_json((source.parent / "run" / "run.json").read_text("utf-8"))


@pytest.mark.deep
def test_the_money_stop_holds_to_within_one_call(source: Path, nim: Nim) -> None:
    words, environment = command(
        source, nim, "--max-cost", "15", "--max-iterations", "4", "--min-speedup", "3"
    )
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=250)
    assert ran.returncode == 1, ran.stderr
    record = record_of(source)
    use = record.model
    assert use is not None
    assert use.cost_usd is not None
    assert len(nim.chats) == use.calls == 3  # six dollars each: the third passes 15
    assert 15.0 <= use.cost_usd <= 15.0 + 6.0
    assert use.fell_back is not None
    assert "--max-cost" in use.fell_back
    assert any(attempt.proposer.startswith("recipe:") for attempt in record.attempts)
    assert ran.stderr.count("recipes continue") == 1


def killed_at(nim: Nim, question: int, source: Path, *more: str) -> dict[str, str]:
    """Start a run and kill it while the server holds back the answer to a question, counted from
    1. Gives the environment to resume it in."""
    reached, killed = threading.Event(), threading.Event()

    def stall_once(asked: Asked) -> Reply:
        if len(nim.chats) == question:
            reached.set()
            killed.wait(60)
        return answer(asked)

    nim.answer_with(stall_once)
    words, environment = command(source, nim, "--max-iterations", "1", *more)
    process = subprocess.Popen(
        words, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    assert reached.wait(120)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    killed.set()
    assert not (source.parent / "run" / "run.json").exists()
    return environment


def resumed_in(environment: dict[str, str], source: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "cudaops", "resume", str(source.parent / "run")],
        env=environment, capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    # The killed process's share of the embedded server: whoever closes it last stops it.
    open_knowledge(load_settings()).close()
    return done


def test_a_killed_run_pays_for_no_call_twice(source: Path, nim: Nim) -> None:
    resumed = resumed_in(killed_at(nim, 2, source), source)
    assert resumed.returncode in (0, 1), resumed.stderr
    asked = Counter(json.dumps(chat.body["messages"], sort_keys=True) for chat in nim.chats)
    times = sorted(asked.values())
    assert times.count(2) == 1, "only the question that was under way is asked again"
    assert set(times) <= {1, 2}
    use = record_of(source).model
    assert use is not None
    assert use.calls == len(asked)
    # What the killed process had asked and never heard is not in our books, but may be in theirs.
    assert use.cost_usd == pytest.approx(6.0 * len(asked))


@pytest.mark.deep
def test_with_no_key_one_line_says_so_and_recipes_run(source: Path) -> None:
    words = [sys.executable, "-m", "cudaops", "run", str(source), "--max-iterations", "1"]
    words += ["--min-speedup", "1.0", "--max-trials", "1"]
    codes = []
    for name, more in (("auto", ()), ("llm", ("--optimizer", "llm"))):
        out = source.parent / name
        ran = subprocess.run(
            [*words, "--out", str(out), *more], capture_output=True, text=True, timeout=250
        )
        told = [line for line in ran.stderr.splitlines() if "NVIDIA_API_KEY" in line]
        assert len(told) == 1, ran.stderr
        assert "recipes propose" in told[0]
        record = RunRecord.model_validate_json((out / "run.json").read_text("utf-8"))
        assert {a.proposer.partition(":")[0] for a in record.attempts} == {"recipe"}
        assert record.model is None
        codes.append(ran.returncode)
    without = subprocess.run(
        [*words, "--out", str(source.parent / "recipes"), "--optimizer", "recipes"],
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert "NVIDIA_API_KEY" not in without.stderr
    assert codes == [without.returncode] * 2


def test_money_without_a_price_is_refused_before_anything_runs(source: Path, nim: Nim) -> None:
    words, environment = command(source, nim, "--max-cost", "1")
    del environment["CUDAOPS_MODEL_PRICE"]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert "CUDAOPS_MODEL_PRICE" in ran.stderr
    assert not (source.parent / "run").exists()
    assert not nim.asked


@pytest.mark.deep
def test_minutes_end_a_run_with_what_it_has(source: Path, nim: Nim) -> None:
    words, environment = command(source, nim, "--budget-minutes", "0.001")
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert "0.001 minutes" in record_of(source).reason
    assert not nim.chats
