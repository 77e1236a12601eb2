"""`smooth` of kernel.cu on an image by NVRTC and the driver: nvrtc_app.py ROWS COLUMNS."""

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver, nvrtc


def checked(found: Any) -> Any:
    """The results of a call, which stand behind its error."""
    if int(found[0]) != 0:
        raise SystemExit(f"a call fails: {found[0]}")
    return found[1] if len(found) == 2 else found[1:]


def cubin(text: bytes, device: Any) -> bytes:
    """Of kernels, for this device."""
    kind = driver.CUdevice_attribute
    major, minor = (
        checked(driver.cuDeviceGetAttribute(one, device))
        for one in (
            kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    program = checked(nvrtc.nvrtcCreateProgram(text, b"kernel.cu", 0, [], []))
    options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
    checked(nvrtc.nvrtcCompileProgram(program, len(options), options))
    image = b" " * int(checked(nvrtc.nvrtcGetCUBINSize(program)))
    checked(nvrtc.nvrtcGetCUBIN(program, image))
    return image


rows, columns = map(int, sys.argv[1:])
checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
module = checked(driver.cuModuleLoadData(cubin(Path("kernel.cu").read_bytes(), device)))
smooth = checked(driver.cuModuleGetFunction(module, b"smooth"))

values = (np.arange(rows * columns) * 7919 % 1000 / 1000).astype(np.float32)
given, out = (checked(driver.cuMemAlloc(values.nbytes)) for _ in range(2))
checked(driver.cuMemcpyHtoD(given, values.ctypes.data, values.nbytes))
arguments = (
    (int(given), int(out), rows, columns),
    (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
)
shape = ((columns + 31) // 32, (rows + 7) // 8, 1, 32, 8, 1)
for _ in range(3):
    checked(driver.cuLaunchKernel(smooth, *shape, 0, 0, arguments, 0))
checked(driver.cuMemcpyDtoH(values.ctypes.data, out, values.nbytes))
total = values.sum(dtype=float)
sys.stdout.write(f"sum {total:.6g}, first {values[0]:.6g}, last {values[-1]:.6g}\n")
