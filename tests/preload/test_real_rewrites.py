"""Real programs and rewrites, captured on the processor: the library launches what was judged."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.judgement import Policy
from cudaops.domain.rewrite import BufferValue
from cudaops.domain.workload import Argument, OpaqueArgument, PointerArgument, ScalarArgument
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.preload.library import write_library
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.workbench import open_workbench
from cudaops.settings import load_settings
from tests.preload.builds import Reach, authors_image, launch, u64, winner_of

pytestmark = [pytest.mark.nvcc]

DATA = Path(__file__).parents[1] / "data"
QUICK = ("stencil", "struct_pointers", "tn_alpha_beta")
"""One with a `__constant__` variable, one with pointers in a structure, one with factors."""
NAMES = [p.stem for p in sorted((DATA / "rewrites").glob("*.cu")) if p.stem != "naive_matmul"]
CODES = {
    "f32": "f", "f64": "d", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I",
    "i64": "q", "u64": "Q", "bool": "?",
}  # fmt: skip


def bytes_of(argument: Argument) -> str:
    """As a program hands it over; buffers stand at places of their own."""
    if isinstance(argument, PointerArgument):
        return u64(place_of(argument.allocation) + argument.offset_bytes)
    if isinstance(argument, OpaqueArgument):
        return argument.raw_hex
    if isinstance(argument, ScalarArgument):
        return struct.pack(f"<{CODES[argument.element]}", argument.value).hex()
    return u64(0)


def place_of(allocation: int) -> int:
    return (allocation + 1) << 32


def three(extent: Dim3) -> list[int]:
    return [extent.x, extent.y, extent.z]


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.deep) for n in NAMES],
)
def test_the_library_launches_what_was_judged(name: str, reached: Reach, tmp_path: Path) -> None:
    program = load_program(DATA / "programs" / f"{name}.cu")
    rewrite = (DATA / "rewrites" / f"{name}.cu").read_text()
    executor = CpuExecutor("A10", load_settings().builds_folder)
    named = re.search(r"a rewrite of `(\w+)`", rewrite)
    assert named is not None
    bench = open_workbench(
        program, named[1], (), executor, Policy(), tmp_path, sm_arch="sm_86", timeout_s=60
    )
    winner = winner_of(program, rewrite, bench.workloads)
    library, image = tmp_path / "libwinner.so", tmp_path / "author.cubin"
    write_library(winner, library)
    image.write_bytes(authors_image(program, bench.workloads).read_bytes())
    (instance,) = winner.instances
    commands = [
        launch(
            instance.symbol, *map(bytes_of, w.arguments), smem=w.dynamic_smem_bytes,
            grid="x".join(map(str, three(w.grid))), block="x".join(map(str, three(w.block))),
        )
        for w in instance.workloads
    ]  # fmt: skip
    done = reached.run(image, *commands, library=library)

    made = make_rewrite(rewrite, "user", "t", "w")
    judged = [p for w in instance.workloads for p in bench.plan(w, made).launches]
    assert "author" not in done.kernels
    for seen, planned in zip(done.launches, judged, strict=True):
        assert seen["grid"] == three(planned.grid)
        assert seen["block"] == three(planned.block)
        assert seen["smem"] == planned.dynamic_smem_bytes
        for given, value in zip(seen["parameters"], planned.values, strict=True):
            if isinstance(value, BufferValue) and value.allocation is not None:
                assert given == u64(place_of(value.allocation) + value.offset_bytes)
            elif value.kind == "raw":
                assert given == value.raw_hex
            elif value.kind == "number" and isinstance(value.value, int):
                data = bytes.fromhex(given)
                assert int.from_bytes(data, "little", signed=True) == value.value
