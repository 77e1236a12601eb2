"""The author's line of nvcc (`--nvcc`), taken apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.cuda.nvcc_line import flags_of
from cudaops.errors import InputError
from cudaops.program.compilation import read_compilation
from cudaops.program.parse import load_program

PROGRAM = """#include <check.h>
#include <cstdio>
__global__ void k(float* x) { x[threadIdx.x] = SIZE; }
int main() { float* x; cudaMalloc(&x, 128); k<<<1, 32>>>(x); }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("common/inc", "prog"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "common" / "inc" / "check.h").write_text(
        "inline int checked(int x) { return x; }\n"
    )
    (tmp_path / "prog" / "k.cu").write_text(PROGRAM)
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        "-Icommon/inc -DSIZE=4 -std=c++20 -lcublas -Xcompiler -fopenmp,-Wall",
        "nvcc -arch=sm_80 -I common/inc -D SIZE=4 --std=c++20 k.cu -lcublas -Xcompiler -fopenmp",
    ],
)
def test_flags_alone_and_the_whole_line_say_the_same(folder: Path, line: str) -> None:
    found, named = read_compilation(line, folder)
    assert named in (None, str(folder / "k.cu"))
    assert set(found.options) == {
        ("I", str(folder / "common/inc")), ("D", "SIZE=4"), ("std", "c++20"),
    }  # fmt: skip
    assert found.nvcc_words == ("-lcublas", "-Xcompiler=-fopenmp")
    program = load_program(folder / "prog" / "k.cu", found)
    assert [f.path for f in program.files] == ["prog/k.cu", "common/inc/check.h"]
    assert program.system_includes == ("cstdio",)
    assert ("I", "common/inc") in program.code_options


def test_a_header_by_two_points_from_a_folder_of_headers(folder: Path) -> None:
    """`-Iprog/sub` and `"../check.h"`, as where all programs of a repository share one line."""
    (folder / "prog" / "sub").mkdir()
    (folder / "prog" / "shared").mkdir()
    (folder / "common" / "inc" / "check.h").rename(folder / "prog" / "shared" / "check.h")
    text = PROGRAM.replace("<check.h>", '"../shared/check.h"')
    (folder / "prog" / "k.cu").write_text(text)
    found, _ = read_compilation("-Iprog/sub -DSIZE=4", folder)
    program = load_program(folder / "prog" / "k.cu", found)
    assert [f.path for f in program.files] == ["k.cu", "shared/check.h"]
    folders = [value for name, value in program.code_options if name == "I"]
    assert folders == ["shared", str(folder / "prog" / "sub")]


def test_the_digest_knows_how_it_is_compiled(folder: Path) -> None:
    source = folder / "prog" / "k.cu"
    digests = {
        load_program(source, read_compilation(f"-Icommon/inc -DSIZE={n}", folder)[0]).sha256
        for n in (4, 5, 4)
    }
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nvcc a.cu b.cpp -o app", r'names a.cu, b.cpp; .* --build "nvcc a.cu .*" --run ./app'),
        ("-Inowhere", "-I nowhere: no such folder; it is looked for from"),
        ("-ptx k.cu", "makes no program"),
        ("-DX='", "No closing quotation"),
    ],
)
def test_what_is_no_line_of_one_program_is_refused(folder: Path, line: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_compilation(line, folder)


def test_the_words_of_a_line_that_another_file_is_compiled_with() -> None:
    line = "nvcc -O3 -arch=sm_80 -gencode arch=a,code=b -I common/inc -DN=4 x.cu -o x -lm"
    assert flags_of(line) == ["-I", "common/inc", "-DN=4", "-lm"]
