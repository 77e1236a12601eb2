"""Wrong input: one line that says what to do, exit 2, and no folder left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes import mostly_deep

PROGRAMS = Path(__file__).parents[1] / "data" / "programs"


def cudaops(
    *arguments: str | Path, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cudaops", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def line_of(name: str, text: str) -> int:
    """1-based line of the first line of a test program that holds `text`."""
    lines = (PROGRAMS / name).read_text("utf-8").splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The error: what stands after the progress lines."""
    found = [line for line in done.stderr.splitlines() if line.startswith("cudaops: ")]
    assert len(found) == 1, done.stderr
    return found[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no_kernel.cu"], "kernel"),
        (["no_main.cu"], "main"),
        (["exits_nonzero.cu"], "exit"),
        (["vector_add.cu", "--kernel", "nothing"], "there is no kernel 'nothing'"),
    ],
)
def test_one_line_and_nothing_left(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = cudaops("run", PROGRAMS / arguments[0], *arguments[1:], cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert says in last_line(done)
    assert list(tmp_path.iterdir()) == []


def test_not_cuda(tmp_path: Path) -> None:
    (tmp_path / "plain.cu").write_text("int main() { return 0; }\n")
    done = cudaops("run", "plain.cu", cwd=tmp_path)
    assert done.returncode == 2
    assert "plain.cu" in last_line(done)
    assert [p.name for p in tmp_path.iterdir()] == ["plain.cu"]


def test_a_syntax_error_comes_with_the_compilers_line(tmp_path: Path) -> None:
    done = cudaops("run", PROGRAMS / "syntax_error.cu", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "syntax_error.cu:" in last_line(done)
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_never_ends_is_stopped(tmp_path: Path) -> None:
    done = cudaops("run", PROGRAMS / "never_ends.cu", "--timeout", "3", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "3 s" in last_line(done)
    assert "--timeout" in last_line(done)
    assert list(tmp_path.iterdir()) == []


def test_an_access_out_of_bounds_is_named_with_its_line(tmp_path: Path) -> None:
    done = cudaops("run", PROGRAMS / "out_of_bounds.cu", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    said = last_line(done)
    assert "out_of_bounds.cu:" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("directive", "says"),
    mostly_deep(
        [
            ("// @launch fast grid=(ceil_div(M, 256)) block=(256) args=(a, b, c, n)", "M"),
            ("// @launch fast grid=(1 +) block=(256) args=(a, b, c, n)", "expected a value"),
            ("// @launch fast block=(256) args=(a, b, c, n)", "grid"),
        ],
        1,
    ),
)
def test_a_bad_launch_directive_is_placed(tmp_path: Path, directive: str, says: str) -> None:
    candidate = tmp_path / "candidate.cu"
    candidate.write_text(
        directive + "\n__global__ void fast(const float* a, const float* b, float* c, int n) {}\n"
    )
    done = cudaops("verify", PROGRAMS / "vector_add.cu", candidate, "--out", "run", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "candidate.cu:1:" in last_line(done)
    assert says in last_line(done)
    assert [p.name for p in tmp_path.iterdir()] == ["candidate.cu"]


def test_a_database_that_refuses_is_exit_3_with_a_remedy(tmp_path: Path) -> None:
    url = "postgresql://somebody:secret@127.0.0.1:9/cudaops"
    done = cudaops("run", PROGRAMS / "vector_add.cu", cwd=tmp_path, DATABASE_URL=url)
    assert done.returncode == 3, done.stderr
    assert "127.0.0.1" in done.stderr
    assert "DATABASE_URL" in done.stderr
    assert "secret" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_embedded_database_that_cannot_start_is_a_notice(tmp_path: Path) -> None:
    """A file stands where the cache wants its folder for the database: the run goes on without."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "knowledge").write_text("not a folder")
    done = cudaops(
        "run", PROGRAMS / "vector_add.cu", "--json", cwd=tmp_path, CUDAOPS_CACHE=str(cache)
    )
    assert done.returncode in (0, 1), done.stderr
    record = json.loads(done.stdout)
    assert record["research"]["degraded"]
    assert record["notices"]


def test_no_compiler_is_exit_3_with_the_command_that_installs_it(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    done = cudaops("run", PROGRAMS / "vector_add.cu", cwd=tmp_path, PATH=str(empty))
    assert done.returncode == 3, done.stderr
    assert "g++" in done.stderr
    assert "install" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["bin"]
