"""What goes between files and the device: whole, in order, and found out where it is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.executors.cuda.runner.driver import TaskRefused
from cudaops.executors.cuda.runner.memory import CHUNK_BYTES, Content, TaskMemory
from tests.executors.cuda.scripted_gpu import ScriptedGpu

SIZES = (0, 1, 4097, CHUNK_BYTES, CHUNK_BYTES + 1, 17 * CHUNK_BYTES + 5)
"""None, one chunk and less, and more chunks than there are places for them."""


def device() -> ScriptedGpu:
    """One with room for the largest of them."""
    gpu = ScriptedGpu()
    gpu.room = 2 * SIZES[-1]
    return gpu


def written(folder: Path, size_bytes: int) -> Path:
    path = folder / f"{size_bytes}.bin"
    path.write_bytes(np.random.default_rng(size_bytes).bytes(size_bytes))
    return path


@pytest.mark.parametrize("size_bytes", SIZES)
def test_there_and_back(tmp_path: Path, size_bytes: int) -> None:
    path = written(tmp_path, size_bytes)
    with TaskMemory(device()) as memory:
        region = memory.take("a", size_bytes, guards=True)
        memory.fill_in(region.address, size_bytes, Content(file=path))
        assert memory.broken_guard() is None
        assert memory.holds(region.address, size_bytes, path)
        memory.save(region.address, size_bytes, tmp_path / "back.bin")
        parts = b"".join(bytes(part) for _, part in memory.read(region.address, size_bytes))
    assert (tmp_path / "back.bin").read_bytes() == parts == path.read_bytes()


@pytest.mark.parametrize("at", [0, 5 * CHUNK_BYTES - 1, 17 * CHUNK_BYTES + 4])
def test_one_other_byte_is_seen(tmp_path: Path, at: int) -> None:
    size_bytes = SIZES[-1]
    path, gpu = written(tmp_path, size_bytes), device()
    with TaskMemory(gpu) as memory:
        region = memory.take("a", size_bytes, guards=True)
        memory.fill_in(region.address, size_bytes, Content(file=path))
        gpu.write(region.address + at, bytes([gpu.read(region.address + at, 1)[0] ^ 1]))
        assert not memory.holds(region.address, size_bytes, path)
        memory.fill_in(region.address, size_bytes, Content(file=path))
        assert memory.holds(region.address, size_bytes, path)


def test_a_file_that_is_another_is_refused(tmp_path: Path) -> None:
    size_bytes = SIZES[-1]
    path = written(tmp_path, size_bytes)
    with TaskMemory(device()) as memory:
        region = memory.take("a", size_bytes + 1, guards=True)
        with pytest.raises(
            TaskRefused, match=f"has {size_bytes} bytes instead of {size_bytes + 1}"
        ):
            memory.fill_in(region.address, size_bytes + 1, Content(file=path))
        with pytest.raises(TaskRefused, match=r"cannot read .*gone\.bin: No such file"):
            memory.holds(region.address, size_bytes, tmp_path / "gone.bin")
        folder = tmp_path / "folder"
        folder.mkdir()
        with pytest.raises(TaskRefused, match="folder"):
            memory.fill_in(region.address, folder.stat().st_size, Content(file=folder))
