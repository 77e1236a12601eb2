"""A whole run with NVIDIA's real client against a local NIM: the first candidate does not compile,
the second is wrong, the third is slower, the fourth wins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

from cudaops.certify.envelope import open_envelope
from cudaops.domain.certificate import Certificate
from cudaops.domain.run import Event, RunRecord
from cudaops.graph.events import read_events
from cudaops.graph.placing import run_options, target
from cudaops.graph.run import start
from cudaops.memory.store import Memory
from cudaops.models.scripted import read_script
from cudaops.rag.embedding import EMBEDDING_MODEL
from cudaops.settings import load_settings
from tests.nim import Nim, Reply

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "scripts" / "naive_matmul.json"
ROLES = (
    "planner", "coder", "fixer", "fixer", "reflector", "coder", "reflector", "fixer", "reflector",
    "coder", "reflector",
)  # fmt: skip


class Job(NamedTuple):
    """What a run left behind, here and at the server."""

    record: RunRecord
    events: list[Event]
    nim: Nim
    folder: Path


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """The dialogue of examples/scripts over HTTP, on a 512 x 512 product."""
    folder = tmp_path_factory.mktemp("job")
    source = folder / "naive_matmul.cu"
    text = (EXAMPLES / "naive_matmul.cu").read_text("utf-8")
    source.write_text(text.replace("N = 1024", "N = 512"), "utf-8")
    replies = [Reply.from_script(answer) for answer in read_script(SCRIPT).answers]
    before = dict(os.environ)
    with Nim(*replies) as nim:
        nim.models = (*nim.models, EMBEDDING_MODEL)
        os.environ.update(
            NVIDIA_BASE_URL=nim.url,
            NVIDIA_API_KEY=str(nim.key),
            CUDAOPS_MODEL_PRICE="1,10",
            CUDAOPS_MEMORY=str(folder / "memory"),
        )
        options = run_options(
            source,
            folder / "run",
            target("A10", None),
            optimizer="llm",
            model=nim.model,
            max_cost_usd=5.0,
            max_iterations=4,
        )
        record = start(options, lambda _: None, load_settings())
        yield Job(record, read_events(folder / "run" / "events.jsonl"), nim, folder)
    os.environ.clear()
    os.environ.update(before)


def test_every_answer_was_asked_for_once_and_in_order(job: Job) -> None:
    assert job.nim.unexpected == 0
    assert not job.nim.replies
    assert len(job.nim.chats) == len(ROLES)
    assert {chat.authorization for chat in job.nim.chats} == {"Bearer test-key"}


def test_the_four_candidates_fell_and_won_as_they_should(job: Job) -> None:
    attempts = job.record.attempts
    assert [a.judgement.outcome for a in attempts] == ["rejected"] * 3 + ["provisional"]
    failed = [next((g.name for g in a.judgement.gates if not g.passed), None) for a in attempts]
    assert failed == ["compile", "correctness_captured", "speedup", None]
    families = ["tiling", "launch_geometry", "launch_geometry", "tiling"]
    assert [a.family for a in attempts] == families
    assert {a.proposer for a in attempts} == {"llm:test/chat"}
    assert attempts[2].candidate_us is not None
    assert attempts[2].baseline_us is not None
    assert attempts[2].candidate_us > attempts[2].baseline_us
    assert attempts[3].configurations_tried == 3  # DEPTH was tuned by the shared tuner
    assert job.record.outcome == "provisional"
    assert job.record.verify.iteration_accepted == 4


def test_failed_attempts_stand_in_the_next_prompt_with_their_reasons(job: Job) -> None:
    chats = [chat.prompt for chat in job.nim.chats]
    coders = [chats[i] for i, role in enumerate(ROLES) if role == "coder"]
    assert "do not repeat" not in coders[0]
    assert "shared-memory tiles of 16x16" in coders[1]
    assert "compile" in coders[1]
    assert "was not declared" in coders[1] or "expected" in coders[1]
    for title in ("shared-memory tiles of 16x16", "wide tiles, four rows a thread"):
        assert title in coders[2]
    assert "correctness_captured" in coders[2]
    assert "0.2" in coders[2]  # how much slower the third was
    assert "Threads of a warp must walk along a row" in coders[2]  # what was learnt of it


def test_prompts_begin_alike_for_the_providers_cache(job: Job) -> None:
    systems = [str(chat.messages[0]["content"]) for chat in job.nim.chats]
    first, last = min(systems), max(systems)
    alike = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    )
    shared = first[:alike]
    assert len(shared) > 0.8 * max(map(len, systems))
    assert "naive_matmul" in shared
    assert not any("shared-memory tiles of 16x16" in system for system in systems)


def test_what_the_model_took_is_accounted_for(job: Job) -> None:
    use, script = job.record.model, read_script(SCRIPT).answers
    assert use is not None
    assert use.model == "test/chat"
    assert use.calls == len(ROLES)
    assert {role: of.calls for role, of in use.by_role.items()} == {
        role: ROLES.count(role) for role in ROLES
    }
    assert use.tokens.input_tokens == sum(a.input_tokens or 0 for a in script)
    assert use.tokens.output_tokens == sum(a.output_tokens or 0 for a in script)
    # ChatNVIDIA 1.5.0 does not hand on what the server says of its cache: all counts as fresh.
    assert use.tokens.cached_input_tokens == 0
    assert not use.tokens.estimated
    wanted_usd = (use.tokens.input_tokens * 1.0 + use.tokens.output_tokens * 10.0) / 1e6
    assert use.cost_usd == pytest.approx(wanted_usd)
    assert use.fell_back is None
    assert "the model" in job.record.seconds_by_tool
    assert str(use.tokens.input_tokens)[:2] in (job.folder / "run" / "report.md").read_text("utf-8")


def test_the_events_tell_the_story_in_order(job: Job) -> None:
    told = iter([event.message for event in job.events])
    for wanted in (
        "hypothesis (tiling): shared-memory tiles of 16x16",
        "the model writes shared-memory tiles of 16x16",
        "it does not compile",
        "it does not compile",
        "iteration 1: rejected, compile",
        "the model writes wide tiles, four rows a thread",
        "iteration 2: rejected, correctness_captured",
        "the model mends wide tiles, four rows a thread",
        "iteration 3: rejected, 0.",
        "the model writes register tiling, 4x4 outputs a thread",
        "iteration 4: provisional",
    ):
        assert any(message.startswith(wanted) for message in told), wanted


def test_the_certificate_says_who_wrote_the_kernel(job: Job) -> None:
    written = job.folder / "run" / "certificate.json"
    certificate = Certificate.model_validate(open_envelope(written.read_bytes(), "it").record)
    assert certificate.candidate.proposer == "llm:test/chat"
    assert certificate.candidate.iteration == 4
    assert certificate.outcome == "provisional"
    assert {g.name for g in certificate.judgement.gates if not g.passed} == set()


def test_memory_keeps_what_was_judged(job: Job) -> None:
    (kernel,) = Memory(job.folder / "memory").kernels()
    assert [e.outcome for e in kernel.entries] == ["rejected"] * 3 + ["provisional"]


def test_no_path_of_this_machine_is_sent(job: Job) -> None:
    for chat in job.nim.chats:
        assert str(job.folder) not in chat.prompt
        assert str(Path.home()) + "/" not in chat.prompt


def test_no_key_is_in_the_run_folder(job: Job) -> None:
    for path in (job.folder / "run").rglob("*"):
        if path.is_file():
            assert b"test-key" not in path.read_bytes(), path
