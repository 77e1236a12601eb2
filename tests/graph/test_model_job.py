"""A whole run with NVIDIA's real client against a local NIM: the first answer never compiles and is
no candidate, the second is wrong before it is judged, its repair is slower, the last one wins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

from cudaops.certify.envelope import open_envelope
from cudaops.cuda.devices import device
from cudaops.domain.certificate import Certificate
from cudaops.domain.judgement import Policy, fine_us
from cudaops.domain.run import Event, RunRecord
from cudaops.graph.events import read_events
from cudaops.graph.resolve_options import run_options, target
from cudaops.graph.run import start
from cudaops.memory.store import MemoryStore
from cudaops.models.scripted import read_script
from cudaops.rag.embedding import EMBEDDING_MODEL
from cudaops.settings import load_settings
from tests.nim import Nim, Reply

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "scripts" / "naive_matmul.json"
ROLES = (
    "planner", "coder", "fixer", "fixer", "coder", "fixer", "reflector", "planner", "coder",
    "reflector",
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
            max_iterations=2,
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


def test_only_what_was_judged_is_an_iteration(job: Job) -> None:
    attempts = job.record.attempts
    assert [a.judgement.outcome for a in attempts] == ["rejected", "provisional"]
    failed = [next((g.name for g in a.judgement.gates if not g.passed), None) for a in attempts]
    assert failed == ["speedup", None]
    assert [a.family for a in attempts] == ["launch_geometry", "tiling"]
    assert {a.proposer for a in attempts} == {"llm:test/chat"}
    slower, kept = attempts
    assert slower.candidate_us is not None
    assert slower.baseline_us is not None
    assert slower.candidate_us > slower.baseline_us
    captured = slower.judgement.gate("correctness_captured")
    assert captured is not None  # told though it is too slow
    assert captured.passed
    assert kept.configurations_tried == 3  # DEPTH was tuned by the shared tuner
    assert len(kept.settings) == 3
    assert job.record.outcome == "provisional"
    assert job.record.verify.iteration_accepted == 2


def test_a_slip_goes_back_and_stands_under_no_attempt(job: Job) -> None:
    chats = [chat.prompt for chat in job.nim.chats]
    fixers = [chats[i] for i, role in enumerate(ROLES) if role == "fixer"]
    assert "was not declared" in fixers[0]
    assert "correctness_captured" in fixers[2]  # seen on the smallest workload
    coders = [chats[i] for i, role in enumerate(ROLES) if role == "coder"]
    assert "Nothing yet." in coders[0]
    assert "Nothing yet." in coders[1]
    assert "shared-memory tiles of 16x16" not in coders[2]


def test_what_was_judged_stands_in_the_next_questions(job: Job) -> None:
    chats = [chat.prompt for chat in job.nim.chats]
    planner, coder = chats[7], chats[8]
    for prompt in (planner, coder):
        assert "wide tiles, four columns a thread" in prompt
        assert "0.2" in prompt  # how much slower it was
        assert "its outputs on the captured inputs are right" in prompt
        assert "Threads of a warp must walk along a row" in prompt  # what was learnt of it
        assert "its own profile:" in prompt
    assert "Planned before what was judged last" in planner
    assert "register tiling, 4x4 outputs a thread" in planner


def test_questions_say_what_decides(job: Job) -> None:
    """Numbers that stand in a question, compared with where they come from."""
    prompt = job.nim.chats[8].prompt
    slower, kept = job.record.attempts
    assert slower.baseline_us is not None
    author = f"where the author's kernel takes {fine_us(slower.baseline_us)}"
    assert author in prompt
    least = fine_us(slower.baseline_us / 1.2)
    assert f"1.20x the author's speed or more: at most {least}" in prompt
    assert f"a launch takes {device('A10').launch_us:g} us before it does anything" in prompt
    assert f"at most {Policy().max_error_factor:g} times the author's own" in prompt
    assert "w0: naive_matmul, grid (32,32,1), block (16,16,1)" in prompt
    assert "A: 262,144 x f32, in; values " in prompt
    assert "the program is run as `./program` (judged and timed)" in prompt
    assert {tuple(one.values) for one in kept.settings} == {("DEPTH",)}
    assert "__global__" not in job.nim.chats[6].prompt  # the reflector is sent no source


def test_prompts_begin_alike_for_the_providers_cache(job: Job) -> None:
    systems = [
        str(chat.messages[0]["content"])
        for chat, role in zip(job.nim.chats, ROLES, strict=True)
        if role != "reflector"  # which is sent no source, and less than a tenth of the rest
    ]
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
        "it goes back to the model: ",
        "it goes back to the model: ",
        "shared-memory tiles of 16x16: ",
        "the model writes wide tiles, four rows a thread",
        "it goes back to the model: correctness_captured",
        "iteration 1: rejected, 0.",
        "the model writes register tiling, 4x4 outputs a thread",
        "iteration 2: provisional",
    ):
        assert any(message.startswith(wanted) for message in told), wanted


def test_the_certificate_says_who_wrote_the_kernel(job: Job) -> None:
    written = job.folder / "run" / "certificate.json"
    certificate = Certificate.model_validate(open_envelope(written.read_bytes(), "it").record)
    assert certificate.candidate.proposer == "llm:test/chat"
    assert certificate.candidate.iteration == 2
    assert certificate.outcome == "provisional"
    assert {g.name for g in certificate.judgement.gates if not g.passed} == set()


def test_memory_keeps_what_was_judged(job: Job) -> None:
    (kernel,) = MemoryStore(job.folder / "memory").kernels()
    assert [e.outcome for e in kernel.entries] == ["rejected", "provisional"]


def test_no_path_of_this_machine_is_sent(job: Job) -> None:
    for chat in job.nim.chats:
        assert str(job.folder) not in chat.prompt
        assert str(Path.home()) + "/" not in chat.prompt


def test_no_key_is_in_the_run_folder(job: Job) -> None:
    for path in (job.folder / "run").rglob("*"):
        if path.is_file():
            assert b"test-key" not in path.read_bytes(), path
