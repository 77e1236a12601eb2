"""Memory as one run sees it: fixed at its start, and never in its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudaops.domain.judgement import Attempt, Gate, Judgement
from cudaops.domain.memory import MemoryEntry
from cudaops.domain.run import ResearchFindings
from cudaops.memory.results import MOST, put_together
from cudaops.memory.run_memory import MemorySnapshot, RunMemory, entry_again, entry_of
from cudaops.memory.store import MemoryStore
from cudaops.prompts.wording import citation_lines
from tests.memory.made import KEY, entry


def attempt(judgement: Judgement, family: str | None = "tiling") -> Attempt:
    return Attempt(
        iteration=1, rewrite_id="r", source_id="s", title="t", proposer="recipe:matmul",
        family=family, judgement=judgement, lesson="do not repeat t",
    )  # fmt: skip


def judged(passed: bool, **changed: object) -> Judgement:
    gates = (
        Gate(name="compile", passed=True, summary="s"),
        Gate(name="speedup", passed=passed, summary="s"),
    )
    values = {
        "outcome": "provisional" if passed else "rejected", "reason": "r", "gates": gates,
        "speedup": 2.0, "time_source": "modelled",
    }  # fmt: skip
    return Judgement.model_validate(values | changed)


def test_the_snapshot_stays_while_the_run_writes(tmp_path: Path) -> None:
    MemoryStore(tmp_path).record(KEY, entry(1))
    MemoryStore(tmp_path).note(KEY, "my note")
    run = RunMemory(tmp_path, KEY)
    before = (run.snapshot.memory_text(), run.snapshot.patterns_text())
    assert run.keep(entry(2)) is None
    assert (run.snapshot.memory_text(), run.snapshot.patterns_text()) == before
    assert "my note" in before[0]
    assert len(MemoryStore(tmp_path).recall(KEY).entries) == 2

    kept = MemorySnapshot.model_validate_json(run.snapshot.model_dump_json())
    resumed = RunMemory(tmp_path, KEY, kept)
    assert resumed.snapshot == run.snapshot
    assert resumed.snapshot.ranking("l1_load_throughput") == run.snapshot.ranking(
        "l1_load_throughput"
    )


def test_the_best_measured_rewrites_of_other_kernels_are_lessons(tmp_path: Path) -> None:
    memory = MemoryStore(tmp_path)
    other = KEY.model_copy(update={"structure": "f" * 16, "name": "gemm"})
    accepted = {"outcome": "accepted", "time_source": "cuda_event"}
    memory.record(KEY, entry(1, speedup=9.0, **accepted))
    for number, speedup in enumerate((1.5, 3.0, 2.0), 2):
        memory.record(other, entry(number, speedup=speedup, **accepted))
    memory.record(other, entry(5, speedup=8.0, outcome="accepted"))  # modelled
    memory.record(other, entry(6, speedup=7.0, **accepted))
    memory.record(other, entry(6, date="2026-11-21T08:00:00Z", gate="repeat", **rejected()))

    snapshot = RunMemory(tmp_path, KEY).snapshot
    lessons = snapshot.lessons_on("l1_load_throughput")
    assert [each.note for each in lessons] == ["memory/gemm"] * 2
    assert [each.text for each in lessons] == [
        "tiling, 3.00x on sm_86: lesson 3", "tiling, 2.00x on sm_86: lesson 4"
    ]  # fmt: skip
    assert snapshot.lessons_on("dram_bandwidth") == ()
    lines = citation_lines(ResearchFindings(query="q", summary="s", citations=lessons))
    assert all("lesson" in line for line in lines)


def rejected() -> dict[str, Any]:
    return {"outcome": "rejected", "time_source": "cuda_event"}


def test_patterns_of_this_class_of_device_come_first(tmp_path: Path) -> None:
    there = KEY.model_copy(update={"device_class": "sm_90"})
    MemoryStore(tmp_path).record(there, entry(1, speedup=9.0, time_source="cuda_event"))
    MemoryStore(tmp_path).record(KEY, entry(1, speedup=1.3))
    run = RunMemory(tmp_path, KEY)
    assert [p.device_class for p in run.snapshot.patterns] == ["sm_86", "sm_90"]


def test_switched_off_it_knows_and_keeps_nothing() -> None:
    run = RunMemory(None, KEY)
    assert run.keep(entry(1)) is None
    assert run.snapshot.notice is None
    assert run.snapshot.memory.empty
    assert run.snapshot.memory_text() == ""


def test_trouble_is_said_once_and_the_run_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    run = RunMemory(folder, KEY)
    assert run.snapshot.notice is None
    folder.write_text("a file in its place")
    notice = run.keep(entry(1))
    assert notice is not None
    assert "the run continues without memory" in notice
    assert "CUDAOPS_MEMORY" in notice
    assert run.keep(entry(2)) is None


def test_trouble_at_the_start_is_in_the_snapshot(tmp_path: Path) -> None:
    (tmp_path / "memory.sqlite").write_text("a file in its place, and no database")
    run = RunMemory(tmp_path, KEY)
    assert run.snapshot.notice is not None
    assert run.keep(entry(1)) is None, "said already"


def test_an_attempt_becomes_an_entry() -> None:
    kept = entry_of(attempt(judged(False)), subtype="dram_bandwidth", run_id="k/1", date="d")
    assert kept is not None
    assert (kept.outcome, kept.gate, kept.speedup, kept.family) == (
        "rejected", "speedup", 2.0, "tiling"
    )  # fmt: skip
    kept = entry_of(attempt(judged(True), None), subtype="x", run_id="k/1", date="d")
    assert kept is not None
    assert (kept.outcome, kept.gate, kept.family) == ("provisional", None, "other")


def test_a_stand_ins_result_is_not_kept() -> None:
    judgement = judged(False, time_source="standin")
    assert entry_of(attempt(judgement), subtype="x", run_id="k/1", date="d") is None


def again(passed: bool, **changed: object) -> Attempt:
    """`source_id` of `entry(1)`, judged anew."""
    first = entry(1)
    return attempt(judged(passed, **changed), family=None).model_copy(
        update={"source_id": first.source_id, "title": first.title}
    )


def recorded_again(memory: MemoryStore, attempt: Attempt, run_id: str = "k/2") -> MemoryEntry:
    kept = entry_again(attempt, [memory.recall(KEY)], subtype="unknown", run_id=run_id, date="d")
    assert kept is not None
    memory.record(KEY, kept)
    return kept


def standing(memory: MemoryStore) -> dict[str, list[str]]:
    """Ids by what came of them once everything is put together."""
    short = put_together(memory.recall(KEY), keep=0)
    found: dict[str, list[str]] = {}
    for made in short.entries:
        found.setdefault(made.outcome, []).append(made.source_id)
    for group in short.avoided:
        found.setdefault("rejected", []).extend(group.source_ids)
    return found


@pytest.mark.parametrize(
    ("judgement", "where"),
    [
        ({"passed": True, "outcome": "accepted", "time_source": "cuda_event"}, "accepted"),
        ({"passed": True}, "provisional"),
        ({"passed": False, "time_source": "cuda_event", "speedup": 0.9}, "rejected"),
        ({"passed": False, "time_source": None, "speedup": None}, "rejected"),
    ],
)
def test_a_pending_result_judged_again_moves(
    judgement: dict[str, Any], where: str, tmp_path: Path
) -> None:
    memory = MemoryStore(tmp_path)
    memory.record(KEY, entry(1))
    memory.record(KEY, entry(2))
    assert standing(memory) == {"provisional": [entry(1).source_id, entry(2).source_id]}
    kept = recorded_again(memory, again(**judgement))
    assert (kept.subtype, kept.family) == (entry(1).subtype, entry(1).family)
    found = standing(memory)
    assert [name for name, ids in found.items() if entry(1).source_id in ids] == [where]
    assert found["provisional"][-1] == entry(2).source_id
    assert sum(p.tried for p in memory.patterns()) == 2


def test_what_was_avoided_is_filed_there_again(tmp_path: Path) -> None:
    memory = MemoryStore(tmp_path)
    memory.record(KEY, entry(1, outcome="rejected", family="unrolling"))
    for number in range(2, MOST + 2):
        memory.record(KEY, entry(number, outcome="rejected"))
    assert entry(1).source_id in memory.recall(KEY).avoided[-1].source_ids
    kept = recorded_again(memory, again(True, outcome="accepted", time_source="cuda_event"))
    assert kept.family == "unrolling"
    assert standing(memory)["accepted"] == [entry(1).source_id]


def test_a_rewrite_nothing_is_known_of_goes_where_the_run_had_it(tmp_path: Path) -> None:
    kept = entry_again(
        attempt(judged(True), "coalescing"), [MemoryStore(tmp_path).recall(KEY)],
        subtype="dram_bandwidth", run_id="k/2", date="d",
    )  # fmt: skip
    assert kept is not None
    assert (kept.subtype, kept.family, kept.run_id) == ("dram_bandwidth", "coalescing", "k/2")
    stand_in = again(True, time_source="standin")
    assert entry_again(stand_in, [], subtype="x", run_id="k/2", date="d") is None
