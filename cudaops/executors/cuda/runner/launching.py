"""One side of a task, loaded and ready: its kernels, its scratch memory, its variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from cudaops.domain.rewrite import BufferValue
from cudaops.executors.cuda.protocol import DeviceFacts, PlannedLaunch, Side
from cudaops.executors.cuda.runner.driver import Driver, DriverError
from cudaops.executors.cuda.runner.faults import (
    KernelFault,
    Refusal,
    launching_fault,
    running_fault,
)
from cudaops.executors.cuda.runner.memory import Content, Memory, Region, Restorable
from cudaops.executors.cuda.runner.values import Unpackable, known_bytes, pack

MAX_BLOCK = (1024, 1024, 64)
MAX_BLOCK_THREADS = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)
"""What every GPU since compute capability 3.0 takes. Source: CUDA C++ Programming Guide, technical
specifications per compute capability."""
REBUILD = "delete the cache folder and run again; if it happens again, report it"


class Prepared(NamedTuple):
    """A launch with its parameters as bytes."""

    planned: PlannedLaunch
    function: Any
    parameters: tuple[bytes, ...]


class LoadedSide:
    """A module and its launches. Unload it after its memory was given back, or before: either."""

    def __init__(self, driver: Driver, side: Side) -> None:
        """Load the module. Raises Refusal where it cannot be loaded."""
        self.driver = driver
        self.side = side
        self.shown = ", ".join(dict.fromkeys(p.kernel.shown for p in side.launches))
        self.prepared: tuple[Prepared, ...] = ()
        self.scratch: dict[str, Region] = {}
        self.module = _loaded(driver, Path(side.module))

    def prepare(self, memory: Memory, buffers: Mapping[int, Region], *, guards: bool) -> None:
        """Allocate scratch memory and pack every parameter.

        Raises KernelFault where a launch is one that no device takes.
        """
        for scratch in self.side.scratch:
            shown = f"scratch buffer {scratch.name}"
            self.scratch[scratch.name] = memory.take(shown, scratch.size_bytes, guards=guards)
            region = self.scratch[scratch.name]
            memory.fill_in(region.address, region.size_bytes, Content(fill=scratch.fill))
        functions = [self._function(p) for p in self.side.launches]
        self._allow_shared(functions)
        self.prepared = tuple(
            Prepared(planned, function, self._parameters(planned, function, buffers))
            for planned, function in zip(self.side.launches, functions, strict=True)
        )

    def launch(self, index: int) -> None:
        """Start one launch of the plan. Raises KernelFault where the driver refuses it."""
        planned, function, parameters = self.prepared[index]
        try:
            self.driver.launch(
                function, planned.grid, planned.block, planned.dynamic_smem_bytes, parameters
            )
        except DriverError as problem:
            shown = planned.kernel.shown
            raise launching_fault(shown, geometry(planned), problem) from problem

    def launch_all(self) -> None:
        """Start the whole plan."""
        for index in range(len(self.prepared)):
            self.launch(index)

    def variable(self, symbol: str, size_bytes: int | None = None) -> tuple[int, int]:
        """Address and size of a device variable. Raises Refusal where it is not as expected."""
        try:
            address, found = self.driver.variable(self.module, symbol)
        except DriverError as problem:
            if problem.name != "CUDA_ERROR_NOT_FOUND":
                raise
            raise Refusal(f"no variable {symbol} in {self.side.module}", REBUILD) from problem
        if size_bytes is not None and found != size_bytes:
            raise Refusal(f"variable {symbol} has {found} bytes instead of {size_bytes}", REBUILD)
        return address, found

    def set_globals(self, memory: Memory) -> None:
        """Write the captured contents into the program's variables."""
        for given in self.side.globals:
            address, size = self.variable(given.symbol, given.size_bytes)
            memory.fill_in(address, size, Content(file=Path(given.file)))

    def restorables(self, memory: Memory) -> list[Restorable]:
        """What of this side is given back before every sample: scratch memory and variables."""
        found = [
            Restorable(
                self.driver, memory, region.address, region.size_bytes, region.shown,
                Content(fill=scratch.fill),
            )
            for scratch in self.side.scratch
            for region in (self.scratch[scratch.name],)
        ]  # fmt: skip
        given = {one.symbol: Content(file=Path(one.file)) for one in self.side.globals}
        for symbol in dict.fromkeys((*given, *self.side.variables)):
            try:
                address, size = self.variable(symbol)
            except Refusal:
                if symbol in given:
                    raise
                continue  # in the module's table but not for a driver to find
            content = given.get(symbol)
            shown = f"variable {symbol}"
            found.append(Restorable(self.driver, memory, address, size, shown, content))
        return found

    def unload(self) -> None:
        """Forget the module."""
        self.driver.unload(self.module)

    def _function(self, planned: PlannedLaunch) -> Any:
        refuse_geometry(planned, self.driver.facts)
        try:
            return self.driver.function(self.module, planned.kernel)
        except DriverError as problem:
            if problem.name != "CUDA_ERROR_NOT_FOUND":
                raise
            text = f"no kernel {planned.kernel.symbol} in {self.side.module}"
            raise Refusal(text, REBUILD) from problem

    def _allow_shared(self, functions: list[Any]) -> None:
        """The opt-in is a function's, not a launch's: the largest of its launches holds."""
        most: dict[str, tuple[int, Any, PlannedLaunch]] = {}
        for planned, function in zip(self.side.launches, functions, strict=True):
            known = most.get(planned.kernel.symbol)
            if known is None or known[0] < planned.dynamic_smem_bytes:
                most[planned.kernel.symbol] = (planned.dynamic_smem_bytes, function, planned)
        for size, function, planned in most.values():
            if size == 0:
                continue
            try:
                self.driver.allow_dynamic_shared(function, size)
            except DriverError as problem:
                shown = planned.kernel.shown
                raise launching_fault(shown, geometry(planned), problem) from problem

    def _parameters(
        self, planned: PlannedLaunch, function: Any, buffers: Mapping[int, Region]
    ) -> tuple[bytes, ...]:
        shown, types = planned.kernel.shown, planned.kernel.parameter_types
        try:
            sizes = self.driver.parameter_sizes(function)
        except DriverError as problem:
            if problem.name != "CUDA_ERROR_NOT_SUPPORTED":
                raise
            sizes = self._sizes(planned)
        if len(sizes) != len(planned.values):
            text = f"{shown} takes {len(sizes)} arguments, the launch gives {len(planned.values)}"
            raise KernelFault("launch_refused", text)
        if len(types) != len(sizes):
            types = ("",) * len(sizes)
        packed = []
        for place, (value, type_text, size) in enumerate(
            zip(planned.values, types, sizes, strict=True), start=1
        ):
            with _argument(shown, place):
                packed.append(pack(value, type_text, size, lambda v: self._address(v, buffers)))
        return tuple(packed)

    def _sizes(self, planned: PlannedLaunch) -> tuple[int, ...]:
        """By the types' names, for a driver that cannot be asked."""
        shown, types = planned.kernel.shown, planned.kernel.parameter_types
        if len(types) != len(planned.values):
            text = f"{shown} takes {len(types)} arguments, the launch gives {len(planned.values)}"
            raise KernelFault("launch_refused", text)
        sizes = []
        for place, (type_text, value) in enumerate(zip(types, planned.values, strict=True), 1):
            with _argument(shown, place):
                sizes.append(known_bytes(type_text, value))
        return tuple(sizes)

    def _address(self, value: BufferValue, buffers: Mapping[int, Region]) -> int:
        region = None
        if value.allocation is not None:
            region = buffers.get(value.allocation)
        elif value.scratch is not None:
            region = self.scratch.get(value.scratch)
        if region is None:
            raise Refusal(f"the task has no buffer for {value!r}", "report it")
        return region.address + value.offset_bytes


@contextmanager
def loaded_side(driver: Driver, side: Side) -> Iterator[LoadedSide]:
    """A side whose module is forgotten afterwards, if the context still lives."""
    loaded = LoadedSide(driver, side)
    try:
        yield loaded
    except BaseException as problem:
        if not (isinstance(problem, KernelFault) and problem.sticky):
            with suppress(DriverError):  # the context may be lost: what happened rules
                loaded.unload()
        raise
    loaded.unload()


def geometry(planned: PlannedLaunch) -> str:
    """A launch's shape in one line."""
    return (
        f"grid {planned.grid}, block {planned.block}, "
        f"{planned.dynamic_smem_bytes} bytes of dynamic shared memory"
    )


def refuse_geometry(planned: PlannedLaunch, facts: DeviceFacts) -> None:
    """Raise KernelFault where no launch of this shape can work on the device."""
    grid, block = planned.grid, planned.block
    sides = ((grid.x, grid.y, grid.z), (block.x, block.y, block.z))
    optin = facts.shared_bytes_per_block_optin
    if min(sides[0]) < 1:
        why = "the grid is empty"
    elif min(sides[1]) < 1:
        why = "the block is empty"
    elif block.volume > MAX_BLOCK_THREADS or _exceeds(sides[1], MAX_BLOCK):
        why = "a block has at most 1024 threads (z at most 64)"
    elif _exceeds(sides[0], MAX_GRID):
        why = "a grid has at most 2147483647 x 65535 x 65535 blocks"
    elif not 0 <= planned.dynamic_smem_bytes <= optin:
        why = f"dynamic shared memory exceeds the limit of {optin} bytes a block"
    else:
        return
    raise KernelFault("launch_refused", f"{planned.kernel.shown}: {geometry(planned)}: {why}")


@contextmanager
def blamed_on(kernels: str) -> Iterator[None]:
    """A driver's error in here is these kernels' unless it cannot be."""
    try:
        yield
    except DriverError as problem:
        raise running_fault(kernels, problem) from problem


@contextmanager
def _argument(shown: str, place: int) -> Iterator[None]:
    try:
        yield
    except Unpackable as problem:
        raise KernelFault("launch_refused", f"{shown}: argument {place}: {problem}") from problem


def _exceeds(found: tuple[int, int, int], most: tuple[int, int, int]) -> bool:
    return any(f > m for f, m in zip(found, most, strict=True))


def _loaded(driver: Driver, image: Path) -> Any:
    try:
        return driver.load(image)
    except DriverError as problem:
        if problem.name in ("CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_IMAGE"):
            major, minor = driver.facts.compute_capability
            text = f"{image} was not built for {driver.facts.name} (sm_{major}{minor})"
            raise Refusal(text, f"build with --arch sm_{major}{minor}") from problem
        raise
    except OSError as problem:
        raise Refusal(f"cannot read {image}: {problem.strerror}", REBUILD) from problem
