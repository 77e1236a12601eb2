"""What a worker finds out about its own executors, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.errors import EnvironmentFailure, SandboxUnavailable
from cudaops.service.self_check import CheckOptions, SelfCheck, working
from tests.standin.platform import STANDIN

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


def options(kernels: Path, **fields: object) -> CheckOptions:
    return CheckOptions.model_validate(
        {"builds": str(kernels), "builds_bytes": 4 << 30, "executors": ("cpu", "cuda"), **fields}
    )


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


async def test_what_does_not_work_is_left_out_or_ends_it(kernels: Path) -> None:
    assert await working(options(kernels), all_must_work=False) == ("cpu",)
    with pytest.raises(SandboxUnavailable, match=r"do not work here: cuda: .*--executor cpu"):
        await working(options(kernels), all_must_work=True)
    with pytest.raises(SandboxUnavailable, match="do not work here: cuda"):
        await working(options(kernels, executors=("cuda",)), all_must_work=False)


@pytest.mark.nvcc
async def test_the_gpus_machinery_over_the_stand_in(kernels: Path) -> None:
    both = await working(options(kernels, driver=STANDIN), all_must_work=True)
    assert both == ("cpu", "cuda")


async def test_whoever_asks_is_told_of_a_failure(kernels: Path) -> None:
    told: list[EnvironmentFailure] = []
    wanted = [options(kernels), options(kernels, executors=("cpu",))]
    check = SelfCheck(lambda: wanted.pop(0), told.append)
    assert not await check.passes()
    assert "cuda" in told[0].problem
    assert await check.passes()
    assert await check.passes(), "believed for a minute, so nobody is asked"
    assert not wanted
