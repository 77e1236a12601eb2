"""Which platform `CUDAOPS_GPU_DRIVER` names, and what is said of one that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.errors import InputError
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.executors.cuda.platform import platform_class
from tests.standin.platform import STANDIN, StandInPlatform


def test_a_class_is_found_by_its_name() -> None:
    assert platform_class(STANDIN) is StandInPlatform


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("standin", "CUDAOPS_GPU_DRIVER is 'standin'; it is 'nvidia', or 'package.module:Class'"),
        ("no.such:Thing", "CUDAOPS_GPU_DRIVER names no.such:Thing, which cannot be imported: No"),
        ("tests.standin.platform:Nothing", "cannot be imported: .*has no attribute 'Nothing'"),
        (":Class", "CUDAOPS_GPU_DRIVER is ':Class'"),
    ],
)
def test_one_that_is_not_there_is_said_in_a_line(name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says) as refused:
        CudaExecutor(None, tmp_path, driver=name)
    assert "\n" not in str(refused.value)
