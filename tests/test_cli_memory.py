"""`cudaops memory` as a shell sees it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cudaops.domain.memory import KernelKey
from cudaops.memory.store import Memory
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
    memory = Memory(tmp_path / "memory")
    memory.record(KEY, entry(1, outcome="accepted", speedup=3.25, time_source="cuda_event"))
    memory.record(KEY, entry(2, outcome="rejected"))
    memory.record(OTHER, entry(3, family="coalescing", subtype="dram_bandwidth"))
    return tmp_path


def the_file(folder: Path, key: KernelKey = KEY) -> Path:
    return next(r.path for r in Memory(folder / "memory").kernels() if r.key == key)


@pytest.mark.parametrize("command", [["list"], ["patterns"], ["forget", "--all"]])
def test_an_empty_memory_says_so_in_one_line(tmp_path: Path, command: list[str]) -> None:
    done = cudaops(*command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "nothing is remembered yet\n"), done.stderr
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
    assert cudaops("path", cwd=folder).stdout == f"{folder / 'memory'}\n"


def test_show_by_name_structure_or_file(folder: Path) -> None:
    text = the_file(folder).read_text("utf-8")
    for word in ("naive_matmul", "0123", the_file(folder).name, str(the_file(folder))):
        done = cudaops("show", word, cwd=folder)
        assert (done.returncode, done.stdout) == (0, text), done.stderr
    shown = json.loads(cudaops("show", "naive_matmul", "--json", cwd=folder).stdout)
    assert [e["speedup"] for e in shown[0]["entries"]] == [3.25, 0.9]


def test_no_control_character_of_a_file_reaches_the_terminal(folder: Path) -> None:
    with the_file(folder).open("ab") as file:
        file.write(b"\x1b[31mred\x07\n")
    assert "\x1b" not in cudaops("show", "naive_matmul", cwd=folder).stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "nothing"], "no kernel nothing is remembered; known: naive_matmul, transpose"),
        (["show", "012"], "no kernel 012 is remembered"),
        (["note", "naive_matmul", " "], "a note needs words"),
        (["forget"], "name a KERNEL"),
        (["forget", "transpose", "--all"], "name a KERNEL"),
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
    Memory(folder / "memory").record(there, entry(1))
    done = cudaops("note", "naive_matmul", "x", cwd=folder)
    assert done.returncode == 2
    assert "naive_matmul is several; name one: naive_matmul-0123456789abcdef-sm_86" in done.stderr
    done = cudaops("note", the_file(folder, there).stem, "x", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert cudaops("show", "naive_matmul", cwd=folder).stdout.count("# naive_matmul on") == 2


def test_a_note_is_kept(folder: Path) -> None:
    done = cudaops("note", "transpose", "the width is odd", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert Memory(folder / "memory").recall(OTHER).notes == "the width is odd"


def editor(folder: Path, code: str) -> dict[str, str]:
    """An editor that does this to `text`."""
    script = folder / "editor.py"
    script.write_text(
        "import sys; from pathlib import Path\n"
        "path = Path(sys.argv[1]); text = path.read_text('utf-8')\n"
        f"{code}\n"
        "path.write_text(text, 'utf-8')\n"
    )
    return {"EDITOR": shlex.join([sys.executable, str(script)]), "VISUAL": ""}


def test_edit(folder: Path) -> None:
    add = f"from tests.memory.made import *; from cudaops.memory.store import Memory\n\
Memory(Path({str(folder / 'memory')!r})).record(KEY, entry(8))\n"
    code = "text = text.replace('| rejected | ', '').replace('lesson 1', 'mine')\n"
    paths = {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = cudaops(
        "edit", "naive_matmul", cwd=folder, environment=editor(folder, code + add) | paths
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "saved: 1 line of results"
    assert "is no result as it stands and counts as a note: - 2026-11-20T08:00:02Z 0.9x" in second
    known = Memory(folder / "memory").recall(KEY)
    assert [e.lesson for e in known.entries] == ["mine", "lesson 8"], "a run wrote meanwhile"
    assert "lesson 2" in known.notes


def test_an_edit_of_the_key_is_pointed_at(folder: Path) -> None:
    code = "text = text.replace('structure: 01', 'structure: 99')"
    done = cudaops("edit", "naive_matmul", cwd=folder, environment=editor(folder, code))
    assert "it is about another kernel now" in done.stdout
    code = "text = text.replace('structure: ', 'form: ')"
    done = cudaops("edit", "transpose", cwd=folder, environment=editor(folder, code))
    assert "the file's name stands in for it" in done.stdout
    assert len(Memory(folder / "memory").kernels()) == 2


def test_an_edit_that_changes_nothing_and_an_editor_that_is_not_there(folder: Path) -> None:
    done = cudaops("edit", "transpose", cwd=folder, environment=editor(folder, ""))
    assert (done.returncode, done.stdout) == (0, "nothing changed\n"), done.stderr
    missing = {"EDITOR": "no-such-editor", "VISUAL": ""}
    done = cudaops("edit", "transpose", cwd=folder, environment=missing)
    assert done.returncode == 3
    assert "no-such-editor" in done.stderr
    assert "set EDITOR" in done.stderr


def test_forget_asks_first(folder: Path) -> None:
    done = cudaops("forget", "transpose", cwd=folder, input="n\n")
    assert done.returncode == 130
    assert "forget transpose on sm_90, notes included?" in done.stdout
    assert len(Memory(folder / "memory").kernels()) == 2
    done = cudaops("forget", "transpose", cwd=folder, input="y\n")
    assert done.returncode == 0
    assert done.stdout.endswith("forgot 1 kernel\n")
    done = cudaops("forget", "naive_matmul", "--source", entry(2).source_id, cwd=folder)
    assert done.stdout == "forgot 1 line of naive_matmul\n"
    assert len(Memory(folder / "memory").recall(KEY).entries) == 1
    done = cudaops("forget", "--all", "--yes", cwd=folder)
    assert done.stdout == "forgot 1 kernel\n"
    assert Memory(folder / "memory").kernels() == ()


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


def test_a_folder_that_cannot_be_read_and_memory_switched_off(folder: Path) -> None:
    (folder / "file").mkdir()
    (folder / "file" / "kernels").write_text("x")
    done = cudaops("list", cwd=folder, memory="file")
    assert done.returncode == 3
    assert "Not a directory" in done.stderr
    done = cudaops("list", cwd=folder, memory="off")
    assert (done.returncode, done.stdout) == (2, "")
    assert "CUDAOPS_MEMORY is off" in done.stderr
