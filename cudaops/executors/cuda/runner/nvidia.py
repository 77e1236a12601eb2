"""`Driver` on NVIDIA's driver API, through `cuda.bindings.driver`.

Every function of that package takes the C function's inputs in its order and returns a tuple: the
status, then the C function's outputs in their order. Clock and temperature come from NVML, through
NVIDIA's `nvidia-ml-py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import uuid
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from cudaops.domain.base import Dim3
from cudaops.executors.cuda.protocol import DeviceFacts, Launchable
from cudaops.executors.cuda.runner.driver import DriverError, DriverMissing

PACKAGE_REMEDY = "python -m pip install 'cudaops[cuda]'"
DRIVER_REMEDY = (
    "install NVIDIA's driver; in a container, start it with the NVIDIA Container Toolkit "
    "(docker run --gpus all)"
)
REMEDIES: dict[str, str] = {
    "CUDA_ERROR_NO_DEVICE": "see what `nvidia-smi -L` lists and what CUDA_VISIBLE_DEVICES says",
    "CUDA_ERROR_INVALID_DEVICE": "choose one that `nvidia-smi -L` lists",
    "CUDA_ERROR_STUB_LIBRARY": "take the toolkit's stubs folder out of LD_LIBRARY_PATH",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "reboot: the kernel module is older than the library",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": (
        "take the forward compatibility folder out of LD_LIBRARY_PATH, or update the driver"
    ),
    "CUDA_ERROR_SYSTEM_NOT_READY": "start the fabric manager: systemctl start nvidia-fabricmanager",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": (
        "another process has exclusive use of the GPU: see `nvidia-smi -q -d COMPUTE`"
    ),
    "CUDA_ERROR_OUT_OF_MEMORY": "end other processes on the GPU; `nvidia-smi` lists them",
    "CUDA_ERROR_UNKNOWN": "reload the module as root: rmmod nvidia_uvm; modprobe nvidia_uvm",
}
NAME_BYTES = 256
NOT_THERE = frozenset({
    "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_UNSUPPORTED_LIMIT", "CUDA_ERROR_INVALID_VALUE",
})  # fmt: skip
"""What a GPU without persisting L2 lines answers (before compute capability 8.0, MIG, MPS)."""


HELPERS = """.version {version}
.target sm_{arch}
.address_size 64
.extern .shared .align 16 .b8 cudaops_shared[];
.visible .entry cudaops_empty()
{{
    ret;
}}
.visible .entry cudaops_fill_shared(.param .u32 words, .param .u32 word)
{{
    .reg .u32 %r<6>;
    .reg .pred %p<2>;
    ld.param.u32 %r1, [words];
    ld.param.u32 %r2, [word];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, cudaops_shared;
next:
    setp.ge.u32 %p1, %r3, %r1;
    @%p1 bra done;
    shl.b32 %r5, %r3, 2;
    add.u32 %r5, %r5, %r4;
    st.volatile.shared.u32 [%r5], %r2;
    add.u32 %r3, %r3, {threads};
    bra next;
done:
    ret;
}}
\0"""
"""PTX of kernels of ours, which the driver compiles. Version 6.3 is the first that knows sm_75, 6.0
the first that knows sm_70 (PTX ISA, release notes)."""
FILL_THREADS = 1024
FILLS_AN_SM = 2
"""Blocks for each SM, of which it holds one at a time: all its shared memory is theirs."""


class NvidiaDriver:
    """One GPU's primary context and one stream that does not wait for the legacy stream."""

    facts: DeviceFacts

    def __init__(self, device_index: int = 0) -> None:
        """Open a GPU. Raises DriverMissing, with what to do about it."""
        try:
            from cuda.bindings import driver
        except ImportError as problem:
            text = f"the package cuda-bindings is not installed ({problem})"
            raise DriverMissing(text, PACKAGE_REMEDY) from problem
        self._cuda: Any = driver
        self._helpers: Any = None
        self._helpers_tried = False
        self._packed: dict[tuple[bytes, ...], tuple[Any, list[Any]]] = {}
        try:
            self._open(device_index)
        except DriverError as problem:
            _give_up(problem)

    def _open(self, device_index: int) -> None:
        self._call("cuInit", 0)
        self._device = self._call("cuDeviceGet", device_index)
        self._context = self._call("cuDevicePrimaryCtxRetain", self._device)
        self._call("cuCtxSetCurrent", self._context)
        non_blocking = self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._stream = self._call("cuStreamCreate", int(non_blocking))
        name = _text(self._call("cuDeviceGetName", NAME_BYTES, self._device))
        own = self._call("cuDeviceGetUuid", self._device)
        shown = f"GPU-{uuid.UUID(bytes=bytes(own.bytes))}"
        place = _text(self._call("cuDeviceGetPCIBusId", NAME_BYTES, self._device))
        self._telemetry = Telemetry(shown, place)
        self.facts = self._facts(name, shown)
        self._leave_no_persisting_l2()

    def _facts(self, name: str, shown: str) -> DeviceFacts:
        version = self._call("cuDriverGetVersion")
        bits = self._attribute("GLOBAL_MEMORY_BUS_WIDTH")
        major = self._attribute("COMPUTE_CAPABILITY_MAJOR")
        return DeviceFacts(
            real=True,
            name=name,
            uuid=shown,
            compute_capability=(major, self._attribute("COMPUTE_CAPABILITY_MINOR")),
            sm_count=self._attribute("MULTIPROCESSOR_COUNT"),
            memory_bytes=self._call("cuDeviceTotalMem", self._device),
            l2_bytes=self._attribute("L2_CACHE_SIZE"),
            shared_bytes_per_block_optin=self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            max_sm_clock_mhz=self._attribute("CLOCK_RATE") / 1e3 or None,
            memory_clock_mhz=self._attribute("MEMORY_CLOCK_RATE") / 1e3 or None,
            memory_bus_bits=bits or None,
            driver_version=self._telemetry.driver_version(),
            cuda_version=f"{version // 1000}.{version % 1000 // 10}",
        )

    def load(self, image: Path) -> Any:
        """See `Driver.load`."""
        return self._call("cuModuleLoadData", image.read_bytes())

    def unload(self, module: Any) -> None:
        """See `Driver.unload`."""
        self._packed.clear()
        self._call("cuModuleUnload", module)

    def function(self, module: Any, kernel: Launchable) -> Any:
        """See `Driver.function`."""
        return self._call("cuModuleGetFunction", module, kernel.symbol.encode())

    def parameter_sizes(self, function: Any) -> tuple[int, ...]:
        """See `Driver.parameter_sizes`. CUDA_ERROR_NOT_SUPPORTED before CUDA 12.4."""
        sizes: list[int] = []
        while True:
            try:
                _offset, size = self._call("cuFuncGetParamInfo", function, len(sizes))
            except DriverError as problem:
                if problem.name == "CUDA_ERROR_INVALID_VALUE":
                    return tuple(sizes)
                raise
            sizes.append(size)

    def allow_dynamic_shared(self, function: Any, size_bytes: int) -> None:
        """See `Driver.allow_dynamic_shared`."""
        attributes = self._cuda.CUfunction_attribute
        most = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._call("cuFuncSetAttribute", function, most, size_bytes)

    def variable(self, module: Any, symbol: str) -> tuple[int, int]:
        """See `Driver.variable`."""
        address, size = self._call("cuModuleGetGlobal", module, symbol.encode())
        return int(address), int(size)

    def allocate(self, size_bytes: int) -> int:
        """See `Driver.allocate`."""
        return int(self._call("cuMemAlloc", size_bytes))

    def free(self, address: int) -> None:
        """See `Driver.free`."""
        self._call("cuMemFree", address)

    def host_memory(self, size_bytes: int) -> memoryview:
        """See `Driver.host_memory`: page-locked."""
        try:
            pointer = int(self._call("cuMemHostAlloc", size_bytes, 0))
        except DriverError:
            return memoryview(bytearray(size_bytes))
        return memoryview((ctypes.c_ubyte * size_bytes).from_address(pointer)).cast("B")

    def write(self, address: int, data: bytes | memoryview) -> None:
        """See `Driver.write`. Waits: the host's memory may go away as soon as this returns."""
        if len(data):
            self._call("cuMemcpyHtoDAsync", address, data, len(data), self._stream)
            self.synchronize()

    def read(self, address: int, size_bytes: int) -> bytes:
        """See `Driver.read`."""
        found = bytearray(size_bytes)
        self.read_into(address, memoryview(found))
        return bytes(found)

    def read_into(self, address: int, target: memoryview) -> None:
        """See `Driver.read_into`."""
        if len(target):
            self._call("cuMemcpyDtoHAsync", target, address, len(target), self._stream)
            self.synchronize()

    def fill(self, address: int, byte: int, size_bytes: int) -> None:
        """See `Driver.fill`."""
        self._call("cuMemsetD8Async", address, byte, size_bytes, self._stream)

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        """See `Driver.copy`."""
        self._call("cuMemcpyDtoDAsync", target, source, size_bytes, self._stream)

    def launch(
        self,
        function: Any,
        grid: Dim3,
        block: Dim3,
        dynamic_smem_bytes: int,
        parameters: Sequence[bytes],
        together: bool = False,
    ) -> None:
        """See `Driver.launch`."""
        given = (
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
            dynamic_smem_bytes, self._stream, self._pointers(tuple(parameters)),
        )  # fmt: skip
        if together:
            self._call("cuLaunchCooperativeKernel", *given)
        else:
            self._call("cuLaunchKernel", *given, 0)

    def empty_kernel(self) -> Any:
        """See `Driver.empty_kernel`. None where this driver has no compiler of PTX."""
        return self._helper("cudaops_empty")

    def fill_shared(self, byte: int) -> bool:
        """See `Driver.fill_shared`. Nothing clears shared memory between two kernels of a context:
        what the last one left is what the next one finds (seen, not promised by NVIDIA)."""
        function = self._helper("cudaops_fill_shared")
        if function is None:
            return False
        size = self.facts.shared_bytes_per_block_optin
        self.allow_dynamic_shared(function, size)
        numbers = (size // 4, byte * 0x01010101)
        parameters = tuple(number.to_bytes(4, "little") for number in numbers)
        grid, block = Dim3(x=FILLS_AN_SM * self.facts.sm_count), Dim3(x=FILL_THREADS)
        self.launch(function, grid, block, size, parameters)
        return True

    def _helper(self, name: str) -> Any:
        """A kernel of ours; None where this driver has no compiler of PTX."""
        if not self._helpers_tried:
            self._helpers_tried = True
            major, minor = min(self.facts.compute_capability, (7, 5))
            version = "6.3" if (major, minor) == (7, 5) else "6.0"
            text = HELPERS.format(version=version, arch=f"{major}{minor}", threads=FILL_THREADS)
            with contextlib.suppress(DriverError):
                self._helpers = self._call("cuModuleLoadData", text.encode())
        if self._helpers is None:
            return None
        return self._call("cuModuleGetFunction", self._helpers, name.encode())

    def graph(self, work: Callable[[], None]) -> Any:
        """See `Driver.graph`."""
        mode = self._cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        try:
            self._call("cuStreamBeginCapture", self._stream, mode)
        except DriverError:
            return None
        try:
            work()
        except BaseException:
            with contextlib.suppress(DriverError):  # what happened rules
                self._cuda.cuGraphDestroy(self._call("cuStreamEndCapture", self._stream))
            raise
        try:
            graph = self._call("cuStreamEndCapture", self._stream)
            ready = _Handle(self._call("cuGraphInstantiate", graph, 0))
        except DriverError:
            return None
        self._cuda.cuGraphDestroy(graph)
        weakref.finalize(ready, self._cuda.cuGraphExecDestroy, ready.handle).atexit = False
        return ready

    def launch_graph(self, graph: Any) -> None:
        """See `Driver.launch_graph`."""
        self._call("cuGraphLaunch", graph.handle, self._stream)

    def event(self) -> Any:
        """See `Driver.event`."""
        event = _Handle(self._call("cuEventCreate", int(self._cuda.CUevent_flags.CU_EVENT_DEFAULT)))
        weakref.finalize(event, self._cuda.cuEventDestroy, event.handle).atexit = False
        return event

    def record(self, event: Any) -> None:
        """See `Driver.record`."""
        self._call("cuEventRecord", event.handle, self._stream)

    def elapsed_us(self, start: Any, end: Any) -> float:
        """See `Driver.elapsed_us`."""
        self._call("cuEventSynchronize", end.handle)
        return float(self._call("cuEventElapsedTime", start.handle, end.handle)) * 1e3

    def synchronize(self) -> None:
        """See `Driver.synchronize`."""
        self._call("cuStreamSynchronize", self._stream)

    def reset_persisting_l2(self) -> None:
        """See `Driver.reset_persisting_l2`. Nothing to do on a GPU that pins no lines."""
        if self._pins_l2:
            self._call("cuCtxResetPersistingL2Cache")

    def profiler_range(self, *, start: bool) -> None:
        """See `Driver.profiler_range`."""
        self._call("cuProfilerStart" if start else "cuProfilerStop")

    def sm_clock_mhz(self) -> float | None:
        """See `Driver.sm_clock_mhz`."""
        return self._telemetry.sm_clock_mhz()

    def temperature_c(self) -> float | None:
        """See `Driver.temperature_c`."""
        return self._telemetry.temperature_c()

    def free_bytes(self) -> int:
        """See `Driver.free_bytes`."""
        free, _total = self._call("cuMemGetInfo")
        return int(free)

    def close(self) -> None:
        """See `Driver.close`."""
        self._telemetry.close()
        self._call("cuStreamDestroy", self._stream)
        self._call("cuDevicePrimaryCtxRelease", self._device)

    def _leave_no_persisting_l2(self) -> None:
        limit = self._cuda.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        self._pins_l2 = True
        for call in (("cuCtxSetLimit", limit, 0), ("cuCtxResetPersistingL2Cache",)):
            try:
                self._call(*call)
            except DriverError as problem:
                if problem.name not in NOT_THERE:
                    raise
                self._pins_l2 = False

    def _attribute(self, name: str) -> int:
        which = getattr(self._cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call("cuDeviceGetAttribute", which, self._device))

    def _pointers(self, parameters: tuple[bytes, ...]) -> int:
        """Address of an array of pointers to the parameters' bytes, kept until a module goes."""
        known = self._packed.get(parameters)
        if known is None:
            held = [ctypes.create_string_buffer(p, len(p)) for p in parameters]
            addresses = [ctypes.addressof(one) for one in held]
            known = ((ctypes.c_void_p * len(held))(*addresses), held)
            self._packed[parameters] = known
        return ctypes.addressof(known[0]) if parameters else 0

    def _call(self, name: str, *arguments: Any) -> Any:
        """What the function gives beside its status. Raises DriverError."""
        try:
            status, *found = getattr(self._cuda, name)(*arguments)
        except RuntimeError as problem:  # the driver, or this function in it, is not there
            missing = "cannot be found" in str(problem) or "not found" in str(problem)
            code = "CUDA_ERROR_NOT_SUPPORTED" if missing else "CUDA_ERROR_UNKNOWN"
            raise DriverError(code, name, " ".join(str(problem).split())) from problem
        except (ValueError, KeyError) as problem:
            # A status newer than the package: cuda-bindings up to 13.0 looks it up in a dictionary.
            raise DriverError("CUDA_ERROR_UNKNOWN", name, f"status {problem}") from problem
        if int(status) != 0:
            raise DriverError(status.name, name, self._meaning(status))
        return found[0] if len(found) == 1 else tuple(found)

    def _meaning(self, status: Any) -> str:
        failed, text = self._cuda.cuGetErrorString(status)
        return "" if int(failed) != 0 else _text(text)


class _Handle:
    """An event or a graph, destroyed with its last reference."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle


def _text(name: bytes) -> str:
    return name.split(b"\0", 1)[0].decode("utf-8", "replace")


def _give_up(problem: DriverError) -> NoReturn:
    """Say what is in the way of a GPU, and what to do."""
    if isinstance(problem.__cause__, RuntimeError):
        if problem.call == "cuInit":
            text = "there is no NVIDIA driver on this machine (libcuda.so.1 was not found)"
            raise DriverMissing(text, DRIVER_REMEDY) from problem
        text = f"NVIDIA's driver is too old: it has no {problem.call}"
        raise DriverMissing(text, "update the driver") from problem
    remedy = REMEDIES.get(problem.name, "look at `nvidia-smi` and at `dmesg | grep -i nvrm`")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    text = f"the GPU cannot be opened: {problem}"
    if visible is not None:
        text += f" (CUDA_VISIBLE_DEVICES={visible})"
    raise DriverMissing(text, remedy) from problem


class Telemetry:
    """NVML's readings of one GPU; None for those it does not have."""

    def __init__(self, uuid: str, pci_bus_id: str) -> None:
        """Find the GPU by its UUID, by its place on the bus where that fails (MIG)."""
        self._nvml: Any = None
        self._handle: Any = None
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        self._nvml = pynvml
        for find, name in (
            (pynvml.nvmlDeviceGetHandleByUUID, uuid),
            (pynvml.nvmlDeviceGetHandleByPciBusId, pci_bus_id),
        ):
            try:
                self._handle = find(name)
            except pynvml.NVMLError:
                continue
            break

    def driver_version(self) -> str:
        """Of the kernel driver: `580.159.04`; empty where it is not known."""
        if self._nvml is None:
            return ""
        try:
            found = self._nvml.nvmlSystemGetDriverVersion()
        except self._nvml.NVMLError:
            return ""
        return found.decode() if isinstance(found, bytes) else str(found)

    def sm_clock_mhz(self) -> float | None:
        """SM clock now."""
        if self._handle is None:
            return None
        try:
            found = self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM)
        except self._nvml.NVMLError:
            return None
        return float(found)

    def temperature_c(self) -> float | None:
        """Temperature of the GPU now."""
        if self._handle is None:
            return None
        ask = getattr(self._nvml, "nvmlDeviceGetTemperatureV", None)
        for one in (ask, self._nvml.nvmlDeviceGetTemperature):
            if one is None:
                continue
            try:
                return float(one(self._handle, self._nvml.NVML_TEMPERATURE_GPU))
            except self._nvml.NVMLError:
                continue
        return None

    def close(self) -> None:
        """Give NVML back."""
        if self._nvml is None:
            return
        nvml, self._nvml, self._handle = self._nvml, None, None
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            return
