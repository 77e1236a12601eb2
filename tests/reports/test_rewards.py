"""`cudaops export rewards`: rows, rewards and advantages of recorded runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from statistics import fmean, pstdev
from typing import Any

import pytest
from typer.testing import CliRunner

from cudaops.cli import app
from cudaops.cli.runs import load_record
from cudaops.domain.execution import CompileFailed
from cudaops.errors import InputError
from cudaops.reports.rewards import RewardRow, group_advantages, reward_rows, staged_reward

ROOT = Path(__file__).parents[2]
DIALOGUES = ROOT / "examples" / "recorded" / "dialogues"


def exported(*words: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["export", "rewards", *words], catch_exceptions=False)
    assert done.exit_code == 0
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_rows_of_a_recorded_dialogue() -> None:
    rows = exported(str(DIALOGUES / "invert8"))
    assert [(r["compiled"], r["correct"], r["reward"]) for r in rows] == [
        (True, False, 0.1),
        (True, True, rows[1]["speedup"]),
        (True, True, rows[2]["speedup"]),
        (True, None, 1.0),
    ]
    assert [r["group"].split("/", 3)[3] for r in rows] == [
        "1/author", "1/author", f"2/{rows[1]['rewrite_id']}", f"3/{rows[2]['rewrite_id']}",
    ]  # fmt: skip
    assert [round(r["advantage"], 6) for r in rows] == [-1, 1, 0, 0]


def test_the_text_goes_with_it_and_runs_of_one_kernel_share_groups(tmp_path: Path) -> None:
    one = ROOT / "tests" / "data" / "recorded" / "naive_matmul"
    again = Path(shutil.copytree(one, tmp_path / "again"))
    record = json.loads((again / "run.json").read_text("utf-8"))
    record["run_id"] = "naive_matmul-again"
    record["attempts"][0]["judgement"]["speedup"] = 2.0
    (again / "run.json").write_text(json.dumps(record), "utf-8")
    first, second = exported(str(one), str(again))
    assert "__global__" in first["source"]
    assert first["group"] == second["group"]
    assert (first["group_size"], first["advantage"] > 0, second["reward"]) == (2, True, 2.0)


def test_what_does_not_compile_has_none() -> None:
    record = load_record(DIALOGUES / "invert8")
    failed = record.attempts[0].model_copy(
        update={"failure": CompileFailed(message="no such name", log="")}
    )
    (row,) = reward_rows([(record.model_copy(update={"attempts": (failed,)}), [None])])
    assert (row.compiled, row.correct, row.reward) == (False, False, 0.0)


def test_stages_and_advantages() -> None:
    """The article's own checks."""
    assert staged_reward(False, True, 9.0) == 0.0
    assert staged_reward(True, False, 9.0) == 0.1
    assert staged_reward(True, True, 3.0) == 3.0
    assert staged_reward(True, True, 0.5) == 1.0
    assert staged_reward(True, None, 9.0) == 1.0
    random = Random(20)
    for _ in range(500):
        group = [random.gauss(0, 3) for _ in range(random.randint(2, 12))]
        want = [(r - fmean(group)) / (pstdev(group) + 1e-8) for r in group]
        assert group_advantages(group) == pytest.approx(want, abs=1e-9)
    assert group_advantages([1.0] * 6) == [0.0] * 6


def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path) -> None:
    shell = CliRunner()
    with pytest.raises(InputError, match="no run 'nosuch'"):
        shell.invoke(app, ["export", "rewards", "nosuch"], catch_exceptions=False)
    record = json.loads((DIALOGUES / "invert8" / "run.json").read_text("utf-8"))
    record["cudaops_version"] = "0.0.3"
    record["tries"] = record.pop("attempts")
    (tmp_path / "run.json").write_text(json.dumps(record), "utf-8")
    with pytest.raises(InputError, match=r"cudaops 0.0.3 wrote it.*tries") as refused:
        shell.invoke(app, ["export", "rewards", str(tmp_path)], catch_exceptions=False)
    assert "\n" not in str(refused.value)
    shutil.copytree(DIALOGUES / "invert8", tmp_path / "copy")
    words = [str(DIALOGUES / "invert8"), str(tmp_path / "copy")]
    with pytest.raises(InputError, match="two of the folders hold the same run"):
        shell.invoke(app, ["export", "rewards", *words], catch_exceptions=False)


def test_every_field_is_in_the_table() -> None:
    page = (ROOT / "docs" / "rewards.md").read_text("utf-8").split("## A row")[1]
    assert not [name for name in RewardRow.model_fields if f"`{name}`" not in page]
