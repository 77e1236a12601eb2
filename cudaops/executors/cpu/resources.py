"""What nvcc says the kernels of a unit take of an SM, for the time model of the `cpu` executor.

Where there is no nvcc, or it does not take the unit, the time model estimates; nothing else here
needs an NVIDIA tool.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cudaops.cuda.devices import device as device_named
from cudaops.domain.execution import CompileFailed, KernelResources, Unit
from cudaops.errors import CudaOpsError, PrerequisiteError
from cudaops.executors.cuda.build import GpuBuilder

KEPT = 256
"""Units whose answer is kept: nvcc is not asked again for one it refused."""

_kept: OrderedDict[tuple[str, ...], NvccResources] = OrderedDict()
_lock = threading.Lock()


class NvccResources(NamedTuple):
    """nvcc's, or why there is none."""

    by_entry: Mapping[int, KernelResources]
    """By position in the rewrite's plan, and by `BASELINE_ENTRY`; empty where there is none."""
    who: str
    """`nvcc 13.0.88`, or why nobody says it."""


def ask_nvcc(cache: Path, device: str, unit: Unit) -> NvccResources:
    """Compile a unit for the device as the `cuda` executor would, and take what ptxas prints.

    Confined as every compiler; the cubin is kept by content, so this is done once for all runs.
    """
    major, minor = device_named(device).compute_capability
    sm_arch = f"sm_{major}{minor}"
    rewrite = "" if unit.rewrite is None else unit.rewrite.id
    key = (str(cache), sm_arch, unit.program.sha256, unit.callee, rewrite)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    try:
        module = _builder(cache, sm_arch).unit(unit, draft=False)
    except PrerequisiteError as missing:
        return NvccResources({}, missing.problem)
    except CudaOpsError as problem:
        answer = NvccResources({}, f"nvcc failed: {problem}")
    else:
        if isinstance(module, CompileFailed):
            answer = NvccResources({}, f"nvcc refuses the unit: {module.placed}")
        else:
            pairs = zip(module.launchables, module.resources, strict=True)
            answer = NvccResources({one.entry: takes for one, takes in pairs}, module.compiler)
    with _lock:
        _kept[key] = answer
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return answer


@functools.lru_cache(maxsize=8)
def _builder(cache: Path, sm_arch: str) -> GpuBuilder:
    return GpuBuilder(cache, sm_arch)
