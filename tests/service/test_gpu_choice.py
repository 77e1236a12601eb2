"""Which GPU a worker uses, from CUDA_VISIBLE_DEVICES and what NVML shows."""

from __future__ import annotations

import pytest

from cudaops.cli.boundary import EXIT_INPUT, run_command
from cudaops.cli.service import worker_commands
from cudaops.errors import InputError
from cudaops.executors.cuda.telemetry import whole_gpus
from cudaops.service.worker import gpu_name, gpus_here, use_gpu
from cudaops.settings import Settings

UUIDS = ("GPU-5f1c8e2a-0000", "GPU-9b7d4c11-0000")


@pytest.mark.parametrize(
    ("visible", "there"),
    [
        ("0,1", ("0", "1")),
        ("3", ("3",)),
        (" 2 , GPU-9b7d , MIG-1 ", ("2", "GPU-9b7d", "MIG-1")),
        ("0,-1,1", ("0",)),
        ("", ()),
        ("NoDevFiles", ()),
    ],
)
def test_what_the_variable_names(visible: str, there: tuple[str, ...]) -> None:
    """An entry that CUDA cannot use hides all that follow."""
    assert gpus_here({"CUDA_VISIBLE_DEVICES": visible}) == there


def test_a_gpu_is_counted_among_those_that_may_be_used() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "2,5"}
    use_gpu(1, environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "5"}
    with pytest.raises(InputError, match="--gpu 2: CUDA_VISIBLE_DEVICES names 2 GPUs"):
        use_gpu(2, {"CUDA_VISIBLE_DEVICES": "2,5"})
    with pytest.raises(InputError, match="names 0 GPUs"):
        use_gpu(0, {"CUDA_VISIBLE_DEVICES": ""})


def test_without_the_variable_it_is_one_of_this_machine() -> None:
    there = whole_gpus()
    environment: dict[str, str] = {}
    use_gpu(0, environment)
    if there:
        assert environment == {"CUDA_VISIBLE_DEVICES": there[0]}
        with pytest.raises(InputError, match="this machine has"):
            use_gpu(len(there), {})
    else:
        assert environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}


@pytest.mark.parametrize(
    ("names", "visible", "name"),
    [
        (("H200", "H200"), "1", "H200"),
        (("H200", "L4"), UUIDS[1], "L4"),
        (("H200", "L4"), UUIDS[0][:8], "H200"),
        (("H200", "L4"), "MIG-1", None),
        # By number it depends on CUDA_DEVICE_ORDER which one it is.
        (("H200", "L4"), "1", None),
        ((), "0", None),
    ],
)
def test_its_name(names: tuple[str, ...], visible: str, name: str | None) -> None:
    gpus = [{"uuid": uuid, "name": one} for uuid, one in zip(UUIDS, names, strict=False)]
    assert gpu_name({"gpus": gpus}, {"CUDA_VISIBLE_DEVICES": visible}) == name


def test_a_service_keeps_a_worker_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    of_gpus = [command[-2:] for command in worker_commands(None, "cuda", Settings())]
    assert of_gpus == [["--gpu", "0"], ["--gpu", "1"]]
    three = [command[-1] for command in worker_commands(3, "all", Settings())]
    assert three == ["0", "1", "0"]
    assert worker_commands(0, "cuda", Settings()) == []
    (on_cpu,) = worker_commands(None, "cpu", Settings())
    assert "--gpu" not in on_cpu
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    (alone,) = worker_commands(None, "cuda", Settings())
    assert "--gpu" not in alone


def test_a_gpu_for_a_worker_on_the_processor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["worker", "--executor", "cpu", "--gpu", "1"]) == EXIT_INPUT
    assert "--executor cpu uses none" in capsys.readouterr().err
