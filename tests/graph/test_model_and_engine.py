"""A model and the transformations in one run: one asks for the other, one polishes what the other
wrote, and the report says who brought what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.domain.judgement import Policy
from cudaops.domain.run import RunRecord
from cudaops.graph.resolve_options import run_options, target
from cudaops.graph.run import start
from cudaops.reports.content import gain_sentence
from cudaops.settings import load_settings
from tests.graph.beam_dialogue import role_of
from tests.graph.test_transformations_job import ROW_SUMS
from tests.nim import Asked, Nim, Reply

FOUR_LANES = """TITLE: four lanes a row
WHY: four times as many threads
```cuda
// @launch four_lanes grid=(ceil_div(rows, 32)) block=(128) args=(a, y, rows, columns)
__global__ void four_lanes(const float* a, float* y, int rows, int columns) {
    int row = blockIdx.x * 32 + threadIdx.x / 4, lane = threadIdx.x % 4;
    float sum = 0.0f;
    if (row < rows) {
        for (int k = lane; k < columns; k += 4) sum += a[row * columns + k];
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (row < rows && lane == 0) y[row] = sum;
}
```
"""
NOTHING = "what is left is the latency of one row"


@pytest.fixture
def nim(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nim]:
    """A server, and an environment that leads to it."""
    with Nim() as server:
        monkeypatch.setenv("NVIDIA_BASE_URL", server.url)
        monkeypatch.setenv("NVIDIA_API_KEY", str(server.key))
        yield server


def plan(**hypothesis: str) -> str:
    named = {"family": "reduction", "why": "one thread a row starves the device", **hypothesis}
    return f"```json\n{json.dumps([named])}\n```"


def run(
    folder: Path, nim: Nim, plans: list[str], iterations: int = 2, *, digest: bool = False
) -> RunRecord:
    """With these answers of the planner, one after the other."""
    source = folder / "sums.cu"
    source.write_text(ROW_SUMS)
    left = iter(plans)

    def answer(asked: Asked) -> Reply:
        role = role_of(asked)
        said = {
            "coder": FOUR_LANES, "reflector": "Coalesced rows were what it lacked.",
            "reasoner": "Give a row to a warp [1]. It is 9 times faster. It costs a shuffle [77].",
        }  # fmt: skip
        return Reply(next(left) if role == "planner" else said[role])

    nim.answer_with(answer)
    options = run_options(
        source, folder / "run", target("A10", None), optimizer="llm", model=Nim.model,
        use_memory=False, digest=digest, max_iterations=iterations, max_trials=4,
        policy=Policy(seed=5),
    )  # fmt: skip
    return start(options, lambda _: None, load_settings())


@pytest.mark.deep
def test_transformations_polish_what_a_model_wrote(tmp_path: Path, nim: Nim) -> None:
    record = run(tmp_path, nim, [plan(title="four lanes a row")])
    written, polished = record.attempts
    assert written.proposer.startswith("llm:")
    assert polished.proposer.startswith("engine:")
    assert written.judgement.speedup is not None
    assert polished.judgement.outcome == "provisional", polished.judgement.reason
    assert polished.judgement.speedup is not None
    assert polished.judgement.speedup > written.judgement.speedup
    split = gain_sentence(record)
    assert f"Of {polished.judgement.speedup:.2f}×" in split
    assert f"the model {written.judgement.speedup:.2f}×" in split
    gained = polished.judgement.speedup / written.judgement.speedup
    assert f"transformations {gained:.2f}×" in split
    assert split in (tmp_path / "run" / "report.md").read_text("utf-8").replace("\\", "")


@pytest.mark.deep
def test_what_a_planner_gives_up_is_polished_and_the_run_ends(tmp_path: Path, nim: Nim) -> None:
    ended = f"```json\n{json.dumps({'nothing': NOTHING})}\n```"
    record = run(tmp_path, nim, [plan(title="four lanes a row"), ended], iterations=5)
    assert [a.proposer.partition(":")[0] for a in record.attempts] == ["llm", "engine"]
    assert [role_of(chat) for chat in nim.chats].count("planner") == 2
    assert any(NOTHING in notice for notice in record.notices)


def test_a_planner_asks_for_a_transformation_and_ends_the_run(tmp_path: Path, nim: Nim) -> None:
    ended = f"```json\n{json.dumps({'nothing': NOTHING})}\n```"
    record = run(
        tmp_path, nim, [plan(title="lanes share a row", transformation="cooperate"), ended]
    )
    (attempt,) = record.attempts
    assert attempt.proposer == "engine:cooperate"
    assert attempt.family == "reduction"
    assert attempt.judgement.outcome == "provisional", attempt.judgement.reason
    assert any(NOTHING in notice for notice in record.notices)
    assert [role_of(chat) for chat in nim.chats] == ["planner", "planner"]
    question = nim.chats[0].prompt
    assert '"transformation": only to have cudaops apply it' in question
    assert "split_work" in question
    assert gain_sentence(record) == ""


def test_what_passages_come_to_is_asked_once_a_verdict(tmp_path: Path, nim: Nim) -> None:
    ended = f"```json\n{json.dumps({'nothing': NOTHING})}\n```"
    record = run(
        tmp_path, nim, [plan(title="lanes share a row", transformation="cooperate"), ended],
        digest=True,
    )  # fmt: skip
    findings = record.research
    assert findings is not None
    assert findings.digest == f"Give a row to a warp [{findings.citations[0].note}]."
    roles = [role_of(chat) for chat in nim.chats]
    assert record.profile is not None
    verdicts = {record.profile.verdict_detail.subtype}
    if record.profile.best_verdict is not None:
        verdicts.add(record.profile.best_verdict.subtype)
    assert roles[0] == "reasoner"
    assert 1 <= roles.count("reasoner") <= len(verdicts)
    assert record.model is not None
    assert record.model.by_role["reasoner"].calls == roles.count("reasoner")
    planner = next(chat for chat, role in zip(nim.chats, roles, strict=True) if role == "planner")
    assert findings.digest in planner.prompt
    assert findings.digest.replace("[", "") in (
        (tmp_path / "run" / "report.md").read_text("utf-8").replace("\\", "").replace("[", "")
    )
