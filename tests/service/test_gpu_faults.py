"""ECC, Xid and DCGM: what is told is served, what is not told is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from cudaops.cuda.driver_texts import parse_faults
from cudaops.service.gpu_faults import faults, merged, parse_dcgm, read_dcgm
from cudaops.service.operation import Metrics
from cudaops.service.store import Store
from tests.service.test_metrics import of, parsed

PAGE = """
==============NVSMI LOG==============

Driver Version                            : 580.159.04
Attached GPUs                             : 3
GPU 00000000:19:00.0
    Product Name                          : NVIDIA H200
    GPU UUID                              : GPU-1b2c3d4e-0000-0000-0000-000000000001
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 1
            SRAM Uncorrectable Parity     : 2
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 40
            DRAM Uncorrectable            : 3
        Aggregate
            SRAM Correctable              : 1
            SRAM Uncorrectable Parity     : 2
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 90
            DRAM Uncorrectable            : 7
            SRAM Threshold Exceeded       : No
        Aggregate Uncorrectable SRAM Sources
            SRAM L2                       : 2
            SRAM SM                       : 0
    Retired Pages
        Single Bit ECC                    : N/A
        Double Bit ECC                    : N/A
        Pending Page Blacklist            : N/A
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 1
        Pending                           : Yes
        Remapping Failure Occurred        : No
        Bank Remap Availability Histogram
            Max                           : 3071 bank(s)
    Temperature
        GPU Current Temp                  : 33 C
GPU 00000000:1A:00.0
    Product Name                          : NVIDIA RTX 4000 Ada Generation
    GPU UUID                              : GPU-1b2c3d4e-0000-0000-0000-000000000002
    ECC Errors
        Volatile
            SRAM Correctable              : N/A
            DRAM Uncorrectable            : N/A
        Aggregate
            DRAM Uncorrectable            : N/A
    Remapped Rows                         : N/A
GPU 00000000:1B:00.0
    Product Name                          : Tesla V100-SXM2-16GB
    GPU UUID                              : GPU-1b2c3d4e-0000-0000-0000-000000000003
    ECC Errors
        Volatile
            Single Bit
                Device Memory             : 4
                Register File             : 1
                Total                     : 5
            Double Bit
                Device Memory             : 0
                Total                     : 0
        Aggregate
            Single Bit
                Total                     : 9
            Double Bit
                Device Memory             : 6
                Total                     : 6
"""
"""Written after pages of drivers 580, 550 and 418 as they are quoted in public; no GPU was here."""

LOG = """
[    5.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04
[ 100.0] NVRM: Xid (PCI:0000:19:00): 48, pid=123, name=app, DBE (double bit error)
[ 101.0] NVRM: Xid (PCI:0000:19:00): 31, pid=124, name=app, MMU Fault
[ 102.0] NVRM: Xid (PCI:0000:19:00): 31, pid=125, name=app, MMU Fault
"""

DCGM = """# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",device="nvidia0",err_code="48",err_msg="DBE"} 48
# TYPE DCGM_FI_PROF_DRAM_ACTIVE gauge
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-a",device="nvidia0"} 0.75
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-a",GPU_I_ID="1",device="nvidia0"} 0.1
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-a",device="nvidia0"} 1024
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Path]:
    """A folder first on PATH, for an nvidia-smi and a dmesg that print what was recorded."""
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{tmp_path}:{before}"
    yield tmp_path
    os.environ["PATH"] = before


def program(folder: Path, name: str, text: str, code: int = 0) -> None:
    (folder / f"{name}.txt").write_text(text, "utf-8")
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat {folder}/{name}.txt\nexit {code}\n", "utf-8")
    path.chmod(0o755)


def test_counters_of_three_generations_of_drivers() -> None:
    h200, ada, v100 = parse_faults(PAGE)
    assert (h200.corrected, h200.uncorrected, h200.uncorrected_lifetime) == (41, 5, 9)
    assert (h200.remap_pending, h200.remap_failed) == (True, False)
    assert ada[2:] == (None,) * 5
    assert v100[2:] == (5, 0, 6, None, None)
    assert parse_faults("No devices were found") == ()
    assert parse_faults("") == ()


@pytest.mark.parametrize("cut", range(0, len(PAGE), 97))
def test_a_page_that_was_cut_short_says_less_and_nothing_else(cut: int) -> None:
    whole = {one.bus_id: one for one in parse_faults(PAGE)}
    for one in parse_faults(PAGE[:cut]):
        full = whole.get(one.bus_id)
        if full is not None:
            assert one.uncorrected in (None, *range((full.uncorrected or 0) + 1))


def test_what_nvidia_smi_and_the_kernels_log_say(driver: Path) -> None:
    program(driver, "nvidia-smi", PAGE)
    program(driver, "dmesg", LOG)
    h200, ada, _ = faults()
    assert h200 == {
        "uuid": "GPU-1b2c3d4e-0000-0000-0000-000000000001", "ecc_corrected_errors": 41,
        "ecc_uncorrected_errors": 5, "ecc_uncorrected_errors_lifetime": 9, "rows_to_remap": 1,
        "row_remap_failed": 0, "xids": {"48": 1, "31": 2},
    }  # fmt: skip
    assert ada == {"uuid": "GPU-1b2c3d4e-0000-0000-0000-000000000002", "xids": {}}


def test_a_log_that_may_not_be_read_is_no_log_without_errors(driver: Path) -> None:
    program(driver, "nvidia-smi", PAGE)
    program(driver, "dmesg", "dmesg: read kernel buffer failed: Operation not permitted", 1)
    assert all("xids" not in one for one in faults())


def test_no_driver_no_faults(driver: Path) -> None:
    program(driver, "nvidia-smi", "NVIDIA-SMI has failed", 9)
    assert faults() == []


def test_an_exporters_page() -> None:
    assert parse_dcgm(DCGM) == [{"uuid": "GPU-a", "last_xid": 48.0, "dram_active_ratio": 0.75}]
    assert parse_dcgm("<html>\n{{{") == []
    assert parse_dcgm("") == []


def test_an_exporter_is_asked_over_http() -> None:
    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(DCGM.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Exporter) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        assert read_dcgm(f"{address}/metrics") == parse_dcgm(DCGM)
        assert read_dcgm(f"{address}/elsewhere") == []
        server.shutdown()
    assert read_dcgm(f"{address}/metrics") == []  # nobody answers any more


def test_the_first_who_tells_counts() -> None:
    nvml = [{"index": 0.0, "uuid": "GPU-a", "name": "H200"}]
    smi = [{"uuid": "GPU-a", "ecc_uncorrected_errors": 1}]
    dcgm = [{"uuid": "GPU-a", "ecc_uncorrected_errors": 2.0, "last_xid": 48.0}]
    assert merged(nvml, smi, dcgm) == [{**nvml[0], **dcgm[0], **smi[0]}]
    assert merged([], [], []) == []


async def test_they_stand_in_the_metrics(store: Store) -> None:
    gpu = {"uuid": "GPU-a", "name": "H200", "ecc_uncorrected_errors": 5, "xids": {"48": 1, "31": 2}}
    await store.beat("w", ["cuda"], "H200", "1", {"gpus": merged([gpu], parse_dcgm(DCGM))})
    samples = parsed(await Metrics(store, "0").exposition())
    labels = {"worker": "w", "gpu": "GPU-a", "name": "H200"}
    assert of(samples, "gpu_ecc_uncorrected_errors", **labels) == 5
    assert of(samples, "gpu_xid_errors", **labels, xid="31") == 2
    assert of(samples, "gpu_last_xid", **labels) == 48
    assert of(samples, "gpu_dram_active_ratio", **labels) == 0.75
    assert of(samples, "gpu_ecc_corrected_errors", **labels) is None
