"""Errors of this machine's GPUs for `/metrics`: ECC by nvidia-smi, Xid by the kernel's log, and
what a DCGM exporter beside it tells."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from cudaops.cuda import driver_texts
from cudaops.errors import CudaOpsError
from cudaops.executors.process import run_bounded

Gauges = dict[str, Any]
"""Of one GPU, by their names in `cudaops_gpu_*`; `uuid` says which; `xids` counts by code."""

PROGRAM_WAIT_S = 10.0
"""For nvidia-smi, which takes seconds where no process keeps the driver loaded, and for dmesg."""
DCGM_WAIT_S = 2.0
"""For one page of the exporter, which has its values at hand."""
DCGM_MOST_BYTES = 4 << 20
"""Of one page: some 100 fields of 16 GPUs with long labels are below 1 MiB."""

DCGM_FIELDS: Mapping[str, str] = {
    "DCGM_FI_DEV_XID_ERRORS": "last_xid",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "ecc_corrected_errors",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc_uncorrected_errors",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": "ecc_uncorrected_errors_lifetime",
    "DCGM_FI_PROF_SM_ACTIVE": "sm_active_ratio",
    "DCGM_FI_PROF_SM_OCCUPANCY": "sm_occupancy_ratio",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor_active_ratio",
    "DCGM_FI_PROF_DRAM_ACTIVE": "dram_active_ratio",
}
"""Fields that are read of the exporter. Source: DCGM's documentation, field identifiers, and the
default counters of dcgm-exporter."""


def faults() -> list[Gauges]:
    """What nvidia-smi and the kernel's log say of each GPU: `ecc_corrected_errors`,
    `ecc_uncorrected_errors`, `ecc_uncorrected_errors_lifetime`, `rows_to_remap`,
    `row_remap_failed`, `xids`.

    What they do not say is missing, never 0. Empty where there is no nvidia-smi; raises nothing.
    """
    page = _said("nvidia-smi", *driver_texts.FAULTS_ARGUMENTS)
    found = driver_texts.parse_faults(page or "")
    log = _said("dmesg") if found else None
    xids = None if log is None else driver_texts.parse_xids(log)
    return [_gauges(one, xids) for one in found]


def _gauges(one: driver_texts.Faults, xids: tuple[driver_texts.Xid, ...] | None) -> Gauges:
    numbers = {
        "ecc_corrected_errors": one.corrected,
        "ecc_uncorrected_errors": one.uncorrected,
        "ecc_uncorrected_errors_lifetime": one.uncorrected_lifetime,
        "rows_to_remap": one.remap_pending,
        "row_remap_failed": one.remap_failed,
    }
    gauges: Gauges = {"uuid": one.uuid or one.bus_id}
    gauges |= {name: int(value) for name, value in numbers.items() if value is not None}
    if xids is not None:
        gauges["xids"] = dict(Counter(str(x.code) for x in xids if x.is_of(one.bus_id)))
    return gauges


def _said(name: str, *arguments: str) -> str | None:
    """What a program prints; None where it is not there, ends with an error or hangs."""
    path = shutil.which(name) or shutil.which(name, path="/usr/lib/wsl/lib")
    if path is None:
        return None
    passed = {n: v for n, v in os.environ.items() if n in ("PATH", "LD_LIBRARY_PATH")}
    try:
        done = run_bounded(
            [path, *arguments],
            cwd=Path("/"),
            timeout_s=PROGRAM_WAIT_S,
            env=passed | {"LC_ALL": "C"},
        )
    except CudaOpsError:
        return None
    return done.stdout if done.exit_code == 0 else None


def read_dcgm(url: str) -> list[Gauges]:
    """What the exporter at this address says of each GPU, by `DCGM_FIELDS`.

    A field that it does not serve is missing. Empty where it does not answer or its page cannot be
    read; raises nothing.
    """
    try:
        with httpx.stream("GET", url, timeout=DCGM_WAIT_S, trust_env=False) as answer:
            if answer.status_code != httpx.codes.OK:
                return []
            page = b""
            for piece in answer.iter_bytes():
                page += piece
                if len(page) > DCGM_MOST_BYTES:
                    return []
        return parse_dcgm(page.decode("utf-8", "replace"))
    except (httpx.HTTPError, httpx.InvalidURL):
        return []


def parse_dcgm(page: str) -> list[Gauges]:
    """The same of the exporter's page in Prometheus' text format; a slice (MIG) is left out: its
    values are not the GPU's."""
    by_gpu: dict[str, Gauges] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                name, uuid = DCGM_FIELDS.get(sample.name), sample.labels.get("UUID")
                if name and uuid and not sample.labels.get("GPU_I_ID"):
                    by_gpu.setdefault(uuid, {"uuid": uuid})[name] = sample.value
    except ValueError:
        return []
    return list(by_gpu.values())


def merged(*told: list[Gauges]) -> list[Gauges]:
    """One entry a GPU; where several tell the same, the first counts."""
    by_gpu: dict[str, Gauges] = {}
    for gauges in told:
        for one in gauges:
            known = by_gpu.setdefault(str(one.get("uuid", one.get("index"))), {})
            known |= {name: value for name, value in one.items() if name not in known}
    return list(by_gpu.values())
