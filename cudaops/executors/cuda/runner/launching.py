"""One side of a task, loaded and ready: its kernels, its scratch memory, its variables."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from cudaops.domain.rewrite import BufferValue, NumberValue, RawValue, Value
from cudaops.executors.cuda.protocol import DeviceFacts, PlannedLaunch, Side
from cudaops.executors.cuda.runner.driver import (
    Driver,
    DriverError,
    KernelFault,
    TaskRefused,
    launching_fault,
    running_fault,
)
from cudaops.executors.cuda.runner.memory import Content, Region, Restorable, TaskMemory

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
        """Load the module. Raises TaskRefused where it cannot be loaded."""
        self.driver = driver
        self.side = side
        self.shown = ", ".join(dict.fromkeys(p.kernel.shown for p in side.launches))
        self.prepared: tuple[Prepared, ...] = ()
        self.scratch: dict[str, Region] = {}
        self.globals = side.globals
        """What the program's variables hold, with addresses in them as they are here."""
        self.module = _loaded(driver, Path(side.module))

    def prepare(self, memory: TaskMemory, buffers: Mapping[int, Region], *, guards: bool) -> None:
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
                function, planned.grid, planned.block, planned.dynamic_smem_bytes, parameters,
                planned.together,
            )  # fmt: skip
        except DriverError as problem:
            shown = planned.kernel.shown
            raise launching_fault(shown, geometry(planned), problem) from problem

    def launch_all(self) -> None:
        """Start the whole plan."""
        for index in range(len(self.prepared)):
            self.launch(index)

    def variable(self, symbol: str, size_bytes: int | None = None) -> tuple[int, int]:
        """Address and size of a device variable. Raises TaskRefused where it is not as expected."""
        try:
            address, found = self.driver.variable(self.module, symbol)
        except DriverError as problem:
            if problem.name != "CUDA_ERROR_NOT_FOUND":
                raise
            raise TaskRefused(f"no variable {symbol} in {self.side.module}", REBUILD) from problem
        if size_bytes is not None and found != size_bytes:
            raise TaskRefused(
                f"variable {symbol} has {found} bytes instead of {size_bytes}", REBUILD
            )
        return address, found

    def set_globals(self, memory: TaskMemory) -> None:
        """Write the captured contents into the program's variables."""
        for given in self.globals:
            address, size = self.variable(given.symbol, given.size_bytes)
            memory.fill_in(address, size, Content(file=Path(given.file)))

    def restorables(self, memory: TaskMemory) -> list[Restorable]:
        """What of this side is given back before every sample: scratch memory and variables."""
        found = [
            Restorable(
                self.driver, memory, region.address, region.size_bytes, region.shown,
                Content(fill=scratch.fill),
            )
            for scratch in self.side.scratch
            for region in (self.scratch[scratch.name],)
        ]  # fmt: skip
        given = {one.symbol: Content(file=Path(one.file)) for one in self.globals}
        for symbol in dict.fromkeys((*given, *self.side.variables)):
            try:
                address, size = self.variable(symbol)
            except TaskRefused:
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
            raise TaskRefused(text, REBUILD) from problem

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
            raise TaskRefused(f"the task has no buffer for {value!r}", "report it")
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
            raise TaskRefused(text, f"build with --arch sm_{major}{minor}") from problem
        raise
    except OSError as problem:
        raise TaskRefused(f"cannot read {image}: {problem.strerror}", REBUILD) from problem


POINTER_BYTES = 8

_FLOATS: dict[str, str] = {
    "float": "f", "double": "d", "__half": "e", "half": "e", "__nv_bfloat16": "b",
    "nv_bfloat16": "b", "_Float16": "e", "__bf16": "b",
}  # fmt: skip
_INTEGERS: dict[str, int] = {
    "char": 1, "signed char": 1, "unsigned char": 1, "char8_t": 1, "short": 2, "unsigned short": 2,
    "char16_t": 2, "wchar_t": 4, "char32_t": 4, "int": 4, "unsigned int": 4, "unsigned": 4,
    "long": 8, "unsigned long": 8, "long long": 8, "unsigned long long": 8, "size_t": 8,
    "__int128": 16, "unsigned __int128": 16, "std::size_t": 8,
}  # fmt: skip
_FLOAT_BYTES = {"f": 4, "d": 8, "e": 2, "b": 2}
_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|restrict)\b")
_VECTOR = re.compile(r"^(?:u?(?:char|short|int|long|longlong)|float|double|__half|half)[1-4]"
                     r"|^(?:__nv_bfloat162|nv_bfloat162)$")  # fmt: skip
MANTISSA_BITS = 53
"""Of a double. Source: IEEE 754-2019, binary64."""


class Unpackable(Exception):
    """The value cannot become this parameter; `str()` says why."""


def known_bytes(type_text: str, value: Value) -> int:
    """Size of a parameter where the driver cannot tell (before CUDA 12.4). Raises Unpackable."""
    plain = _plain(type_text)
    if _is_pointer(plain):
        return POINTER_BYTES
    if plain == "bool":
        return 1
    if plain in _FLOATS:
        return _FLOAT_BYTES[_FLOATS[plain]]
    if plain in _INTEGERS:
        return _INTEGERS[plain]
    if value.kind == "raw":
        return len(value.raw_hex) // 2
    raise Unpackable(f"the size of {type_text} is not known to this driver; it needs CUDA 12.4")


def pack(
    value: Value, type_text: str, size_bytes: int, address_of: Callable[[BufferValue], int]
) -> bytes:
    """The parameter's bytes. `type_text` is its C++ spelling, empty where it is not known.

    Numbers become what a C++ call would make of them: integers wrap, floating values round to
    nearest or lose their fraction. Raises Unpackable.
    """
    if value.kind == "raw":
        return _raw(value, size_bytes, address_of)
    plain = _plain(type_text)
    if value.kind == "number":
        return _number(value, plain, size_bytes)
    if size_bytes != POINTER_BYTES or not (_is_pointer(plain) or not plain):
        raise Unpackable(f"a pointer is given where {type_text or 'a value'} is needed")
    return _address(address_of(value) if value.kind == "buffer" else 0)


def _address(number: int) -> bytes:
    return struct.pack("<Q", number & 0xFFFF_FFFF_FFFF_FFFF)


def _plain(type_text: str) -> str:
    text = _QUALIFIER.sub(" ", type_text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\s*([*&])", r"\1", text)


def _is_pointer(plain: str) -> bool:
    return plain.endswith(("*", "&")) or bool(re.search(r"\(\*", plain))


def _raw(value: RawValue, size_bytes: int, address_of: Callable[[BufferValue], int]) -> bytes:
    try:
        data = bytearray.fromhex(value.raw_hex)
    except ValueError as problem:
        raise Unpackable("its bytes are not hexadecimal") from problem
    if len(data) != size_bytes:
        raise Unpackable(f"{len(data)} bytes are given where {size_bytes} are needed")
    for pointer in value.pointers:
        end = pointer.at_bytes + POINTER_BYTES
        if not POINTER_BYTES <= end <= size_bytes:
            raise Unpackable(f"a pointer at byte {pointer.at_bytes} of {size_bytes}")
        data[pointer.at_bytes : end] = _address(address_of(pointer.to))
    return bytes(data)


def _number(value: NumberValue, plain: str, size_bytes: int) -> bytes:
    number = value.value
    if _is_pointer(plain):
        raise Unpackable("a pointer is needed")
    if plain == "bool":
        return _sized(bytes([number != 0]), size_bytes)
    if plain in _FLOATS:
        return _sized(_floating(number, _FLOATS[plain]), size_bytes)
    if plain in _INTEGERS:
        return _integer(number, size_bytes)
    if isinstance(number, int) and size_bytes in (1, 2, 4, 8) and not _VECTOR.match(plain):
        return _integer(number, size_bytes)  # an enumeration, by its name a type like any other
    raise Unpackable(f"a number is given where {plain or 'another type'} is needed")


def _sized(data: bytes, size_bytes: int) -> bytes:
    if len(data) != size_bytes:
        raise Unpackable(f"the driver gives the parameter {size_bytes} bytes, not {len(data)}")
    return data


def _integer(number: int | float, size_bytes: int) -> bytes:
    if isinstance(number, float) and not math.isfinite(number):
        raise Unpackable(f"{number} is not an integer")
    return (int(number) % (1 << (8 * size_bytes))).to_bytes(size_bytes, "little")


def _floating(number: int | float, code: str) -> bytes:
    exact = _double(number, code)
    if code == "b":
        return _bfloat16(exact)
    try:
        return struct.pack(f"<{code}", exact)
    except OverflowError:
        return struct.pack(f"<{code}", math.copysign(math.inf, exact))


def _double(number: int | float, code: str) -> float:
    """A double that rounds to the target as the number itself would.

    An integer longer than a double's mantissa is rounded to odd, so that the second rounding, to
    the shorter type, sees what was lost; a double's own rounding is to nearest.
    """
    if isinstance(number, float):
        return number
    extra = abs(number).bit_length() - MANTISSA_BITS
    if extra <= 0 or code == "d":
        return _to_double(number)
    top, lost = divmod(abs(number), 1 << extra)
    odd = _to_double((top | bool(lost)) << extra)
    return math.copysign(odd, number)


def _to_double(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def _bfloat16(number: float) -> bytes:
    """Round to nearest even from the exact double."""
    if math.isnan(number):
        return b"\xff\x7f"
    single = struct.unpack("<I", _truncated_to_odd(number))[0]
    upper, lower = single >> 16, single & 0xFFFF
    upper += lower > 0x8000 or (lower == 0x8000 and upper & 1 == 1)
    return struct.pack("<H", upper)


def _truncated_to_odd(number: float) -> bytes:
    """A float whose last bit remembers whether anything was lost: a second rounding is right."""
    if math.isinf(number):
        return struct.pack("<f", number)
    largest = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
    if abs(number) > largest:
        return struct.pack("<f", math.copysign(largest, number))
    nearest = struct.unpack("<f", struct.pack("<f", number))[0]
    bits = struct.unpack("<I", struct.pack("<f", nearest))[0]
    if abs(nearest) > abs(number):
        bits -= 1
    if nearest != number:
        bits |= 1
    return struct.pack("<I", bits)
