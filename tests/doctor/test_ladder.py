"""The ladder itself: what is tried, what is not, how long, and how it is shown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from cudaops.doctor import LADDER, Examination, examine, table
from cudaops.doctor.ladder import (
    CheckContext,
    CheckOutcome,
    PlannedCheck,
    Rung,
    climb,
    failed,
    missing,
    ok,
)
from cudaops.doctor.prerequisites import STEPS as HOST
from cudaops.errors import InputError, PrerequisiteError, SandboxUnavailable
from cudaops.settings import Settings
from tests.doctor.machines import OtherMachine, climbed, settings

Raiser = Callable[[], Exception]


def done(steps: list[PlannedCheck], tmp_path: Path) -> dict[str, Rung]:
    return {rung.name: rung for rung in climb(steps, OtherMachine(), settings(tmp_path))}


def test_what_stands_on_a_broken_rung_is_not_tried(tmp_path: Path) -> None:
    def never(site: CheckContext) -> CheckOutcome:
        raise AssertionError("tried")

    steps = [
        PlannedCheck("a", lambda site: missing("no a", "get a"), ("cuda",)),
        PlannedCheck("b", never, ("cuda",), ("a",)),
        PlannedCheck("c", lambda site: ok("c")),
        PlannedCheck("d", never, (), ("b", "c")),
        PlannedCheck("e", lambda site: failed("broken e", "mend e")),
        PlannedCheck("f", never, (), ("d", "e")),
    ]
    found = done(steps, tmp_path)
    assert [r.status for r in found.values()] == [
        "missing", "skipped", "ok", "skipped", "failed", "skipped",
    ]  # fmt: skip
    assert found["d"].detail == "not tried: needs a"
    assert found["f"].blocked_by == ("a", "e")
    assert found["f"].remedy is None


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (PrerequisiteError("no tool", "get it"), "missing", "no tool"),
        (SandboxUnavailable("no space", "make some"), "failed", "no space"),
        (InputError("bad"), "failed", "bad"),
        (PermissionError(13, "denied"), "failed", "denied"),
        (KeyError("x"), "failed", "this check is at fault: KeyError: 'x'"),
    ],
)
def test_errors_of_a_check(error: Exception, status: str, words: str, tmp_path: Path) -> None:
    def check(site: CheckContext) -> CheckOutcome:
        raise error

    found = done([PlannedCheck("a", check)], tmp_path)["a"]
    assert found.status == status
    assert words in found.detail


def test_a_check_that_hangs_is_given_up(tmp_path: Path) -> None:
    def hangs(site: CheckContext) -> CheckOutcome:
        time.sleep(1.0)
        return ok("too late")

    steps = [PlannedCheck("a", hangs, bound_s=0.05), PlannedCheck("b", lambda site: ok("b"))]
    found = done(steps, tmp_path)
    assert found["a"].detail == "gave no answer within 0.05 s"
    assert found["b"].status == "ok"


def test_the_ladder_stands(tmp_path: Path) -> None:
    """Each rung stands on rungs before it, and no needed one on an optional one."""
    known: dict[str, PlannedCheck] = {}
    for step in LADDER:
        assert step.name not in known
        assert set(step.stands_on) <= set(known)
        for below in step.stands_on:
            assert set(step.needed_by) <= set(known[below].needed_by), step.name
        known[step.name] = step
    assert {s.name for s in LADDER if "cpu" in s.needed_by} == {s.name for s in HOST}


@pytest.fixture(scope="module")
def here() -> Examination:
    """This machine, whatever it is. In the cache of this test process: the embedded database may
    not enter pytest's own folders."""
    return examine(Settings(cache=Path(os.environ["CUDAOPS_CACHE"]), runs=Path("runs")))


def test_this_machine(here: Examination) -> None:
    assert here.ready
    assert "cpu" in here.executors
    assert [rung.name for rung in here.rungs] == [step.name for step in LADDER]
    for rung in here.rungs:
        assert "at fault" not in rung.detail
        assert (rung.status == "skipped") == bool(rung.blocked_by)
        assert rung.status in ("ok", "skipped") or rung.remedy, rung
        assert rung.needed == ("cpu" in rung.needed_by)
    rungs = {rung.name: rung for rung in here.rungs}
    assert rungs["knowledge"].status == "ok"
    assert rungs["graph"].status == "ok"
    if rungs["driver"].status != "ok":
        assert rungs["launch"].detail == "not tried: needs driver"
        assert here.executors == ("cpu",)


def test_json_holds_all_of_it(here: Examination) -> None:
    assert Examination.model_validate_json(here.model_dump_json()) == here


def shown(examination: Examination) -> str:
    console = Console(width=100, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(table(examination))
    return capture.get()


def test_a_table_without_a_gpu_is_short(tmp_path: Path) -> None:
    machine = OtherMachine(
        programs=("nvcc", "nvdisasm"),
        answers={k: v for k, v in OtherMachine().answers.items() if "libcuda" not in k}
        | {r"libcuda\.py": OtherMachine().answers["dmesg"]._replace(stdout='{"missing": "x"}')},
    )
    rungs = climbed(machine, settings(tmp_path), *(s.name for s in LADDER if s.name != "knowledge"))
    text = shown(
        Examination(
            cudaops_version="0", ready=True, executors=("cpu",), rungs=tuple(rungs.values())
        )
    )
    skipped = [line for line in text.splitlines() if line.startswith("skipped")]
    assert len(skipped) <= 4
    assert "not tried: needs driver" in skipped[0]
    assert "Ready: python -m cudaops run FILE.cu works here." in text
    assert "--executor cuda does not work here: driver." in text


def test_a_table_of_a_whole_machine(tmp_path: Path) -> None:
    names = [s.name for s in LADDER if s.name not in ("knowledge", "ncu report", "nim models")]
    rungs = climbed(OtherMachine(), settings(tmp_path), *names)
    text = shown(
        Examination(
            cudaops_version="0", ready=True, executors=("cpu", "cuda"), rungs=tuple(rungs.values())
        )
    )
    assert "--executor cuda works here: times are measured." in text
    assert "for cuda" in text
    broken = Rung(name="g++", needed=True, needed_by=("cpu",), status="failed", detail="\x1b[31mx")
    text = shown(Examination(cudaops_version="0", ready=False, rungs=(broken,)))
    assert "Not ready: fix the required checks" in text
    assert "\x1b[31m" not in text


def test_each_rung_is_heard_as_it_is_done(tmp_path: Path) -> None:
    heard: list[str] = []
    found = examine(settings(tmp_path), OtherMachine(), lambda rung: heard.append(rung.name))
    assert heard == [rung.name for rung in found.rungs]
    assert found.executors == ("cpu", "cuda"), [r for r in found.rungs if r.status != "ok"]


def test_the_document_has_every_rung() -> None:
    text = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text("utf-8")
    rows = [tuple(c.strip() for c in line.strip("|").split("|")) for line in text.splitlines()]
    told = {row[0]: (row[2], row[3]) for row in rows if len(row) == 4}
    for step in LADDER:
        needed_by, stands_on = told[step.name]
        assert needed_by == (", ".join(step.needed_by) or "–"), step.name
        assert stands_on == (", ".join(step.stands_on) or "–"), step.name
