"""`cudaops memory` as a shell sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cudaops.domain.memory import KernelKey
from cudaops.memory.store import MemoryStore
from cudaops.memory.texts import document
from tests.memory.made import KEY, entry

OTHER = KernelKey(structure="fedcba9876543210", device_class="sm_90", name="transpose")


def cudaops(
    *arguments: str, cwd: Path, memory: str = "memory", **more: Any
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CUDAOPS_MEMORY": memory} | more.pop("environment", {})
    return subprocess.run(
        [sys.executable, "-m", "cudaops", "memory", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **more,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with two kernels in its memory."""
    memory = MemoryStore(tmp_path / "memory")
    memory.record(KEY, entry(1, outcome="accepted", speedup=3.25, time_source="cuda_event"))
    memory.record(KEY, entry(2, outcome="rejected"))
    memory.record(OTHER, entry(3, family="coalescing", subtype="dram_bandwidth"))
    return tmp_path


@pytest.mark.parametrize("command", [["list"], ["patterns"], ["forget", "--all"]])
def test_an_empty_memory_says_so_in_one_line(tmp_path: Path, command: list[str]) -> None:
    done = cudaops(*command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "no results are stored yet\n"), done.stderr
    assert not (tmp_path / "memory").exists()


def test_list_and_path(folder: Path) -> None:
    done = cudaops("list", cwd=folder)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.split()[:3] == ["naive_matmul", "sm_86", "0123456789abcdef"]
    assert first.endswith("1 of 2 paid, best 3.25x cuda_event")
    assert second.endswith("1 of 1 paid, best 2.00x modelled")
    rows = json.loads(cudaops("list", "--json", cwd=folder).stdout)
    assert [row["name"] for row in rows] == ["naive_matmul", "transpose"]
    assert rows[0] == {
        "name": "naive_matmul", "device_class": "sm_86", "structure": "0123456789abcdef",
        "file": str(folder / "memory" / "memory.sqlite"), "tried": 2, "paid": 1,
        "best_speedup": 3.25, "best_source": "cuda_event", "notes": False,
    }  # fmt: skip
    assert cudaops("path", cwd=folder).stdout == f"{folder / 'memory'}\n"


def test_show_by_name_structure_or_label(folder: Path) -> None:
    text = document(MemoryStore(folder / "memory").recall(KEY)) + "\n"
    assert "| 3.25x cuda_event |" in text
    for word in ("naive_matmul", "0123", "naive_matmul-0123456789abcdef-sm_86"):
        done = cudaops("show", word, cwd=folder)
        assert (done.returncode, done.stdout) == (0, text), done.stderr
    shown = json.loads(cudaops("show", "naive_matmul", "--json", cwd=folder).stdout)
    assert [e["speedup"] for e in shown[0]["entries"]] == [3.25, 0.9]
    assert set(shown[0]) == {"key", "entries", "avoided", "notes"}


def test_no_control_character_reaches_the_terminal(folder: Path) -> None:
    MemoryStore(folder / "memory").note(KEY, "\x1b[31mred\x07")
    assert "\x1b" not in cudaops("show", "naive_matmul", cwd=folder).stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "nothing"], "no kernel nothing has results; known: naive_matmul, transpose"),
        (["show", "012"], "no kernel 012 has results"),
        (["note", "naive_matmul", " "], "a note needs text"),
        (["forget"], "name a KERNEL"),
        (["forget", "transpose", "--all"], "name a KERNEL"),
        (["forget", "--all", "--notes"], "name a KERNEL"),
        (["forget", "transpose", "--notes", "--source", "x"], "name a KERNEL"),
        (["forget", "transpose", "--source", "x"], "transpose has no result of a rewrite x"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(folder: Path, arguments: list[str], says: str) -> None:
    done = cudaops(*arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_name_that_is_several_kernels(folder: Path) -> None:
    there = KEY.model_copy(update={"device_class": "sm_90"})
    MemoryStore(folder / "memory").record(there, entry(1))
    done = cudaops("note", "naive_matmul", "x", cwd=folder)
    assert done.returncode == 2
    assert "naive_matmul is several; name one: naive_matmul-0123456789abcdef-sm_86" in done.stderr
    done = cudaops("note", "naive_matmul-0123456789abcdef-sm_90", "x", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert cudaops("show", "naive_matmul", cwd=folder).stdout.count("# naive_matmul on") == 2


def test_a_note_is_kept(folder: Path) -> None:
    done = cudaops("note", "transpose", "the width is odd", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert MemoryStore(folder / "memory").recall(OTHER).notes == "the width is odd"
    done = cudaops("forget", "transpose", "--notes", cwd=folder)
    assert done.stdout == "forgot 1 note of transpose\n"
    known = MemoryStore(folder / "memory").recall(OTHER)
    assert (known.notes, len(known.entries)) == ("", 1)


def test_forget_asks_first(folder: Path) -> None:
    done = cudaops("forget", "transpose", cwd=folder, input="n\n")
    assert done.returncode == 130
    assert "forget transpose on sm_90, notes included?" in done.stdout
    assert len(MemoryStore(folder / "memory").kernels()) == 2
    done = cudaops("forget", "transpose", cwd=folder, input="y\n")
    assert done.returncode == 0
    assert done.stdout.endswith("forgot 1 kernel\n")
    done = cudaops("forget", "naive_matmul", "--source", entry(2).source_id, cwd=folder)
    assert done.stdout == "forgot 1 line of naive_matmul\n"
    assert len(MemoryStore(folder / "memory").recall(KEY).entries) == 1
    done = cudaops("forget", "--all", "--yes", cwd=folder)
    assert done.stdout == "forgot 1 kernel\n"
    assert MemoryStore(folder / "memory").kernels() == ()


def test_patterns(folder: Path) -> None:
    done = cudaops("patterns", cwd=folder)
    assert len(done.stdout.splitlines()) == 2
    done = cudaops("patterns", "--subtype", "dram_bandwidth", cwd=folder)
    assert done.stdout == (
        "- against dram_bandwidth on sm_90, coalescing: 1 of 1 paid, median 2.00x, best 2.00x "
        "modelled\n"
    )
    found = json.loads(cudaops("patterns", "--device-class", "sm_86", "--json", cwd=folder).stdout)
    assert [(p["family"], p["tried"], p["paid"]) for p in found] == [("tiling", 2, 1)]


def test_a_database_that_is_none_and_memory_switched_off(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "memory.sqlite").write_text("somebody's own words, " * 100)
    done = cudaops("list", cwd=folder, memory="other")
    assert done.returncode == 3
    assert "file is not a database" in done.stderr
    assert "move it away" in done.stderr
    done = cudaops("list", cwd=folder, memory="off")
    assert (done.returncode, done.stdout) == (2, "")
    assert "CUDAOPS_MEMORY is off" in done.stderr
