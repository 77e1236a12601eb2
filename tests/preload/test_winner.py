"""Which runs and rewrites become a library, and the one line that says why others do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cudaops.cli.boundary import EXIT_ENVIRONMENT, EXIT_FOUND, EXIT_INPUT, run_command
from cudaops.domain.program import Build
from cudaops.errors import InputError
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.preload.winner import capability_of
from tests.certify.runs import BASELINE
from tests.executors.cuda.gpu_builds import program_of
from tests.preload.builds import Reach, authors_image, i32, launch, u64, winner_of, workload

pytestmark = [pytest.mark.nvcc]

SWIFT = """
// @launch swift grid=(1) block=(1) args=(y, n)
__global__ void swift(float* y, int n) { y[n] = 1; }
"""
CAPTURED = [workload("k", y="f32", n=("i32", 1))]


def preload(run: Path, *more: str) -> int:
    return run_command(["preload", str(run), *more])


@pytest.fixture
def run(certified: Path, tmp_path: Path) -> Path:
    """A finished run's folder."""
    return Path(shutil.copytree(certified / "run", tmp_path / "run"))


def test_the_library_of_a_real_run(
    run: Path, tmp_path: Path, reached: Reach, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "made" / "libwinner.so"
    library.parent.mkdir()
    assert preload(run, "--arch", "sm_90", "--out", str(library)) == EXIT_FOUND
    printed = capsys.readouterr()
    assert "correlate: coalesced.cu, for sm_90\n" in printed.out
    assert f"LD_PRELOAD={library} PROGRAM" in printed.out
    assert printed.err.startswith("cudaops: the rewrite is provisional, not accepted: ")
    assert [p.name for p in library.parent.iterdir()] == ["libwinner.so"]

    captured = [workload("correlate", x="f32", y="f32", n=("i32", 1))]
    built = authors_image(program_of(BASELINE.read_text().partition("int main")[0]), captured)
    image = tmp_path / "author.cubin"
    shutil.copy(built, image)
    command = launch("_Z9correlatePKfPfi", u64(16), u64(32), i32(4096))
    done = reached.run(image, command, library=library)
    assert done.kernels == ["rows"]
    assert done.launches[0]["parameters"] == [u64(16), u64(32), i32(4096)]


def test_a_run_on_the_processor_names_no_gpu(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert preload(run, "--out", str(tmp_path / "l.so")) == EXIT_INPUT
    assert capsys.readouterr().err == (
        "cudaops: the run was on the processor; say which GPU the library is for, as --arch sm_90\n"
    )
    assert preload(run, "--arch", "hopper") == EXIT_INPUT
    assert "--arch hopper is no architecture of a GPU" in capsys.readouterr().err
    assert not (tmp_path / "l.so").exists()


def test_a_run_without_a_winner(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads((run / "run.json").read_text())
    record |= {"best": None, "judgement": None, "outcome": "nothing_found", "reason": "no gain"}
    (run / "run.json").write_text(json.dumps(record))
    assert preload(run, "--arch", "sm_90") == EXIT_INPUT
    assert capsys.readouterr().err == f"cudaops: {run} kept no rewrite (nothing_found: no gain)\n"


def test_a_record_without_its_program(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run / "state")
    assert preload(run, "--arch", "sm_90") == EXIT_INPUT
    assert "holds the record alone, not the captured program" in capsys.readouterr().err


def test_where_it_cannot_be_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "none" / "l.so"
    assert preload(run, "--arch", "sm_90", "--out", str(missing)) == EXIT_ENVIRONMENT
    assert f"{missing} cannot be written: No such file or directory" in capsys.readouterr().err


def test_without_nvcc(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    if find_nvcc() is not None:
        pytest.skip("nvcc is among the system's programs or in the toolkit extra")
    assert preload(run, "--arch", "sm_90") == EXIT_ENVIRONMENT
    assert capsys.readouterr().err.startswith("cudaops: nvcc is not installed\n")


def test_a_static_kernel_of_a_project_could_be_another_files() -> None:
    source = "static __global__ void k(float* y, int n) { y[n] = 1; }\nvoid* use = (void*)k;"
    program = program_of(source)
    assert winner_of(program, SWIFT, CAPTURED).instances[0].symbol == "_Z1kPfi"
    build = Build(tree_sha256="0", snapshot="tree.tar", command="make", source="k.cu")
    project = program.model_copy(update={"build": build})
    with pytest.raises(InputError, match="`k` is static or in an anonymous namespace: other files"):
        winner_of(project, SWIFT, CAPTURED)
    shared = program_of(source.removeprefix("static "))
    assert winner_of(shared.model_copy(update={"build": build}), SWIFT, CAPTURED).instances


@pytest.mark.parametrize(
    "rewrite",
    [
        "__global__ void swift(float* y, int n) { y[n] = 1; count = 1; }",
        "__global__ void swift(float* y, int n) { y[n] = 1; counted(); }",
        "__global__ void swift(float* y, int n) { y[n] = 1; COUNTED; }",
    ],
)
def test_a_variable_of_the_program_that_a_library_would_have_a_copy_of(rewrite: str) -> None:
    source = """
    #define COUNTED atomicAdd(&count, 1)
    __device__ int count;
    __device__ void counted() { COUNTED; }
    __global__ void k(float* y, int n) { y[n] = 1; counted(); }
    """
    head = SWIFT.splitlines()[1]
    with pytest.raises(InputError, match="uses the program's variable `count`, of which a library"):
        winner_of(program_of(source), f"{head}\n{rewrite}", CAPTURED)
    assert winner_of(program_of(source), SWIFT, CAPTURED).instances[0].constants == ()


def test_a_constant_that_has_no_name_outside_of_its_file() -> None:
    source = """
    namespace { __constant__ float hidden[4]; }
    __constant__ float seen[4];
    __global__ void k(float* y, int n) { y[n] = hidden[n] + seen[n]; }
    """
    reads = SWIFT.replace("= 1", "= seen[n]")
    assert winner_of(program_of(source), reads, CAPTURED).instances[0].constants == ("seen",)
    with pytest.raises(InputError, match="hidden` has no name that a library could find it by"):
        winner_of(program_of(source), SWIFT.replace("= 1", "= hidden[n]"), CAPTURED)


def test_captured_arguments_that_are_not_the_kernels() -> None:
    program = program_of("__global__ void k(float* y, int n) { y[n] = 1; }")
    with pytest.raises(InputError, match="the parameters of `k` in its cubin are not those"):
        winner_of(program, SWIFT, [workload("k", y="f32", n=("i64", 1))])


@pytest.mark.parametrize(
    ("arch", "known"),
    [("sm_90", (9, 0, False)), ("sm_90a", (9, 0, True)), ("sm_120", (12, 0, False)),
     ("sm_103f", (10, 3, False))],
)  # fmt: skip
def test_what_an_architecture_runs_on(arch: str, known: tuple[int, int, bool]) -> None:
    assert capability_of(arch) == known
