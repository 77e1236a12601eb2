"""Asks the driver's own library what it knows, with nothing but Python's standard library.

Run as a program in a bounded child process: a broken driver may hang or crash whoever opens it.
Prints one JSON object. Nothing is allocated on the GPU and no context is made.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any

MULTIPROCESSOR_COUNT, MAJOR, MINOR = 16, 75, 76
"""Source: cuda.h, CUdevice_attribute."""


def ask() -> dict[str, Any]:
    """`missing`: the loader's message. Else `error` of cuInit (`` where it went well), `version`
    of CUDA the driver speaks (13000 for 13.0), and `devices` in CUDA's order."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"missing": str(error)}
    code = cuda.cuInit(0)
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    answer: dict[str, Any] = {"error": _name(cuda, code), "version": version.value, "devices": []}
    count = ctypes.c_int()
    if code == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
        answer["devices"] = [_device(cuda, ordinal) for ordinal in range(count.value)]
    return answer


def _device(cuda: Any, ordinal: int) -> dict[str, Any]:
    device = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, 256, device)
    raw = (ctypes.c_ubyte * 16)()
    # The second form (R470 and newer) names a MIG slice by itself and not by its GPU.
    (getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid)(raw, device)
    size = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    digits = bytes(raw).hex()
    parts = (digits[0:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32])
    return {
        "name": name.value.decode("utf-8", "replace"),
        "uuid": "GPU-" + "-".join(parts),
        "capability": [_attribute(cuda, MAJOR, device), _attribute(cuda, MINOR, device)],
        "sm_count": _attribute(cuda, MULTIPROCESSOR_COUNT, device),
        "memory_bytes": size.value,
    }


def _attribute(cuda: Any, which: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    cuda.cuDeviceGetAttribute(ctypes.byref(value), which, device)
    return value.value


def _name(cuda: Any, code: int) -> str:
    """`CUDA_ERROR_NO_DEVICE`; empty for success."""
    if code == 0:
        return ""
    text = ctypes.c_char_p()
    if cuda.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value:
        return text.value.decode("ascii", "replace")
    return f"error {code}"


if __name__ == "__main__":
    print(json.dumps(ask()))  # noqa: T201  it is a program
