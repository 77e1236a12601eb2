"""What a worker measures of its machine: its GPUs through NVML, its load. Sent with every beat."""

from __future__ import annotations

import os

from cudaops.sandbox.gpu.telemetry import gpu_gauges


def sample() -> dict[str, object]:
    """Gauges for the `workers` table; quick, raises nothing, no GPU gives no `gpus`.

    `load_1m`: runnable processes, mean of a minute. `cpus`: processors this process may use.
    `gpus`: a list of `sandbox.gpu.telemetry.gpu_gauges`.
    """
    return {
        "load_1m": os.getloadavg()[0],
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": gpu_gauges(),
    }
