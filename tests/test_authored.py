"""benchmarks/authored.py: what is said beside an author's program."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.authored import authored, authored_below, authored_in

PROGRAM = "__global__ void k() {}\n__host__ int main(int n, char** v) { k<<<1, 1>>>(); }\n"


@pytest.mark.parametrize(
    ("said", "args", "kernel"),
    [
        ("512 'a b' 3\n", "512 'a b' 3", None),
        ("--kernel scan -- --n 4\n", "--n 4", "scan"),
        ("--kernel scan --\n", "", "scan"),
        ("--kernel 3x3\n", "--kernel 3x3", None),
        ("", "", None),
    ],
)
def test_arguments_and_the_kernel_before_them(
    tmp_path: Path, said: str, args: str, kernel: str | None
) -> None:
    (tmp_path / "main.cu").write_text("// args: 7\n" + PROGRAM)
    assert authored_in(tmp_path).args == "7"
    (tmp_path / "ARGS").write_text(said)
    (tmp_path / "NVCC").write_text("-Iinc -Xcompiler -fopenmp\n")
    found = authored(tmp_path / "main.cu")
    assert (found.args, found.kernel) == (args, kernel)
    assert found.nvcc_words == ["-Iinc", "-Xcompiler", "-fopenmp"]


def test_what_has_no_main_is_no_program(tmp_path: Path) -> None:
    for name in ("b/main.cu", "a/main.cu", "a/part.cu"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(
            PROGRAM.replace("main", "not_main" * ("part" in name) or "main")
        )
    found = [one.path.relative_to(tmp_path).as_posix() for one in authored_below(tmp_path)]
    assert found == ["a/main.cu", "b/main.cu"]
