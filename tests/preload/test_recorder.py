"""The recorder at the driver, loaded into programs on the double that reach it in every way."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.executors.cuda.driver_recorder import driver_recorder, kernel_list
from cudaops.settings import load_settings
from tests.executors.cuda.gpu_builds import program_of
from tests.preload.builds import Made, Reach, f32, i32, launch, u64
from tests.preload.conftest import SCALE

pytestmark = [pytest.mark.nvcc]
Y, X = u64(0x10000), u64(0x20000)


def recorded(
    reached: Reach,
    scale: Made,
    folder: Path,
    *commands: str,
    reach: str = "dlsym",
    text: str = SCALE,
) -> list[list[str]]:
    """Lines of the report, split; the program is as it is without the recorder."""
    (folder / "kernels").write_text(kernel_list(program_of(text)))
    environment = {
        "CUDAOPS_RECORDER_REPORT": str(folder / "report"),
        "CUDAOPS_RECORDER_FOLDER": str(folder),
        "CUDAOPS_RECORDER_KERNELS": str(folder / "kernels"),
    }
    library = driver_recorder(load_settings().builds_folder)
    done = reached.run(
        scale.image, *commands, library=library, reach=reach, environment=environment
    )
    plain = reached.run(scale.image, *commands, reach=reach)
    assert (done.printed, done.stderr) == (plain.printed, plain.stderr)
    for one, other in zip(done.launches, plain.launches, strict=True):
        assert {**one, "stream": 0, "context": 0} == {**other, "stream": 0, "context": 0}
    report = folder / "report"
    return [x.split("\t") for x in report.read_text().splitlines()] if report.is_file() else []


def verbs(lines: list[list[str]], verb: str) -> list[list[str]]:
    return [line[1:] for line in lines if line[0] == verb]


def of_scale(scale: Made, **shape: object) -> str:
    return launch(scale.symbol, Y, X, i32(4096), f32(0.5), **shape)  # type: ignore[arg-type]


@pytest.mark.parametrize("reach", ["dlsym", "address", "address1", "address_ptsz", "linked"])
def test_a_launch_is_seen_however_the_driver_is_reached(
    reached: Reach, scale: Made, tmp_path: Path, reach: str
) -> None:
    lines = recorded(reached, scale, tmp_path, of_scale(scale), of_scale(scale), reach=reach)
    (config,) = verbs(lines, "config")
    assert config[1:] == ["scale", "0", "1", "64", "1", "1", "64", "1", "1", "0", ""]
    assert verbs(lines, "symbol") == [["1", scale.symbol]]
    assert verbs(lines, "count")[0][:2] == ["scale", "2"]
    assert verbs(lines, "arg") == [["0", "2", "scalar", "i32", i32(4096)],
                                   ["0", "3", "scalar", "f32", f32(0.5)]]  # fmt: skip
    assert lines[-1] == ["end"]


@pytest.mark.parametrize("how", ["extra", "config", "kernel"])
def test_however_a_launch_is_spelled(reached: Reach, scale: Made, tmp_path: Path, how: str) -> None:
    lines = recorded(reached, scale, tmp_path, of_scale(scale, how=how))
    if how == "kernel":  # the double tells no parameters of a CUkernel
        assert verbs(lines, "unseen")[0][0] == "scale"
    else:
        assert len(verbs(lines, "config")) == 1


def test_what_is_not_recorded_is_told(reached: Reach, scale: Made, tmp_path: Path) -> None:
    lines = recorded(reached, scale, tmp_path, of_scale(scale, how="cluster"))
    assert verbs(lines, "unseen") == [["scale", "it is launched with attributes"]]
    (tmp_path / "graph").mkdir()
    lines = recorded(reached, scale, tmp_path / "graph", of_scale(scale, how="captured"))
    assert verbs(lines, "graph") == [["scale", "0"]]
    (tmp_path / "other").mkdir()
    text = 'extern "C" __global__ void another(float* x) { *x = 1; }\n'
    lines = recorded(reached, scale, tmp_path / "other", of_scale(scale), text=text)
    assert verbs(lines, "other") == [["scale"]]
    assert not verbs(lines, "config")


def test_many_threads_and_contexts(reached: Reach, scale: Made, tmp_path: Path) -> None:
    threads = f"threads 4 25 {of_scale(scale)}"
    lines = recorded(reached, scale, tmp_path, of_scale(scale), "context", threads)
    assert verbs(lines, "count")[0][:2] == ["scale", "101"]


def test_an_older_driver_says_what_it_lacks(reached: Reach, scale: Made, tmp_path: Path) -> None:
    lines = recorded(reached.old, scale, tmp_path, of_scale(scale))
    assert verbs(lines, "lacks") == [["cuFuncGetName"]]


def test_types_without_c_plus_plus_names(reached: Reach) -> None:
    text = (
        "typedef float real; struct Pair { float* first; int second; };\n"
        'extern "C" __global__ void k(const real* __restrict__ x, Pair by, unsigned n, double* y,\n'
        "                             const float4* z) { y[n] = x[0] * by.second + z[0].x; }\n"
    )
    (line,) = (x for x in kernel_list(program_of(text)).splitlines() if x.startswith("kernel"))
    assert line.split("\t")[3:] == ["float const*", "Pair", "unsigned", "double*", "float4 const*"]
