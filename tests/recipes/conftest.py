"""Programs made of one kernel, parsed by the real parser."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.program import Program, SourceFile
from cudaops.domain.workload import (
    Allocation,
    Argument,
    PointerArgument,
    ScalarArgument,
    Workload,
)
from cudaops.program.parse import parse_files

MakeProgram = Callable[..., Program]


@pytest.fixture
def program_of() -> MakeProgram:
    """Parses kernel text, with a `main` behind it, and further files by name."""

    def make(text: str, **headers: str) -> Program:
        files = [SourceFile(path="main.cu", text=text + "\nint main() { return 0; }\n")]
        files += [SourceFile(path=f"{name}.cuh", text=body) for name, body in headers.items()]
        return parse_files("main", tuple(files))

    return make


@pytest.fixture
def launch_of() -> Callable[..., Workload]:
    """A captured launch as far as recognition and plans look at it; no contents."""

    def make(
        callee: str,
        pointers: str = "A B C",
        *,
        grid: tuple[int, int, int] = (4, 4, 1),
        block: tuple[int, int, int] = (16, 16, 1),
        **scalars: float,
    ) -> Workload:
        arguments: list[Argument] = [
            PointerArgument(name=name, element="f32", allocation=i)
            for i, name in enumerate(pointers.split())
        ]
        arguments += [
            ScalarArgument(name=n, element="i32" if isinstance(v, int) else "f32", value=v)
            for n, v in scalars.items()
        ]
        allocations = tuple(
            Allocation(index=i, size_bytes=4, element="f32", role="in", before="b", after="a")
            for i in range(len(pointers.split()))
        )
        return Workload(
            id="w0", kernel=callee.split("<")[0], callee=callee, site=0,
            grid=Dim3(x=grid[0], y=grid[1], z=grid[2]),
            block=Dim3(x=block[0], y=block[1], z=block[2]),
            arguments=tuple(arguments), allocations=allocations, folder="",
        )  # fmt: skip

    return make
