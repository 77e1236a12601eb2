"""One row a compute capability: the SM's lanes and limits, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from cudaops.cuda.devices_base import Architecture

_GUIDE = (
    "CUDA C++ Programming Guide 12: tables 'Technical Specifications per Compute Capability' and "
    "'Throughput of Native Arithmetic Instructions'; CUDA occupancy calculator: allocation units"
)
_GUIDE_13 = (
    "Limits, carve-outs and the ratio of FP32 to FP64: CUDA Programming Guide 13, appendix Compute "
    "Capabilities, tables 30 to 32; allocation units and schedulers: cuda_occupancy.h of CUDA 13.0"
)
_KB = 1024

SM_75 = Architecture(
    compute_capability=(7, 5), sm_arch="sm_75", schedulers_per_sm=4,
    fp32_lanes_per_sm=64, fp64_lanes_per_sm=2, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    max_warps_per_sm=32, max_blocks_per_sm=16, max_threads_per_sm=1024,
    l1_shared_bytes_per_sm=96 * _KB, shared_bytes_per_sm=64 * _KB,
    min_shared_bytes_per_sm=32 * _KB, shared_bytes_per_block_optin=64 * _KB,
    shared_reserved_per_block=0, shared_allocation_unit=256,
    arch_source=f"{_GUIDE_13}; lanes: CUDA C++ Programming Guide 12, section Compute Capability "
    "7.x",
)  # fmt: skip

SM_80 = Architecture(
    compute_capability=(8, 0), sm_arch="sm_80", schedulers_per_sm=4,
    fp32_lanes_per_sm=64, fp64_lanes_per_sm=32, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=32, l1_bytes_per_clk_per_sm=128,
    max_warps_per_sm=64, max_blocks_per_sm=32, max_threads_per_sm=2048,
    l1_shared_bytes_per_sm=192 * _KB, shared_bytes_per_sm=164 * _KB,
    shared_bytes_per_block_optin=163 * _KB,
    arch_source=f"{_GUIDE}; load/store units: A100 whitepaper, figure of the GA100 SM (8 a "
    "quarter)",
)  # fmt: skip

SM_86 = Architecture(
    compute_capability=(8, 6), sm_arch="sm_86", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=2, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=16, l1_bytes_per_clk_per_sm=128,
    max_warps_per_sm=48, max_blocks_per_sm=16, max_threads_per_sm=1536,
    l1_shared_bytes_per_sm=128 * _KB, shared_bytes_per_sm=100 * _KB,
    shared_bytes_per_block_optin=99 * _KB,
    arch_source=f"{_GUIDE}; L1 width and load/store units: GA102 whitepaper, figure of the GA10x "
    "SM (4 a quarter), and consistent with a measured A10: naive product of size 1024, 2 load "
    "instructions a k and warp, 2 cycles each, are 1.864e6 cycles an SM, 93.9 % (the reported SM "
    "throughput) of 1.185 ms at 1675 MHz, next to the boost clock",
)  # fmt: skip

SM_89 = Architecture(
    compute_capability=(8, 9), sm_arch="sm_89", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=2, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=16, l1_bytes_per_clk_per_sm=128,
    max_warps_per_sm=48, max_blocks_per_sm=24, max_threads_per_sm=1536,
    l1_shared_bytes_per_sm=128 * _KB, shared_bytes_per_sm=100 * _KB,
    shared_bytes_per_block_optin=99 * _KB,
    arch_source=f"{_GUIDE}; load/store units: Ada whitepaper, figure of the AD10x SM (4 a quarter)"
    ", not checked by a measurement",
)  # fmt: skip

SM_90 = Architecture(
    compute_capability=(9, 0), sm_arch="sm_90", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=64, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=32, l1_bytes_per_clk_per_sm=128,
    max_warps_per_sm=64, max_blocks_per_sm=32, max_threads_per_sm=2048,
    l1_shared_bytes_per_sm=256 * _KB, shared_bytes_per_sm=228 * _KB,
    shared_bytes_per_block_optin=227 * _KB,
    arch_source=f"{_GUIDE}; limits and lanes checked against the device__attribute_* and "
    "peak_sustained columns of tests/data/ncu (H200); load/store rate: same capture, 0.643 load "
    "instructions a cycle are 64.3 % of the pipe's peak",
)  # fmt: skip

SM_100 = Architecture(
    compute_capability=(10, 0), sm_arch="sm_100", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=64, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    max_warps_per_sm=64, max_blocks_per_sm=32, max_threads_per_sm=2048,
    l1_shared_bytes_per_sm=256 * _KB, shared_bytes_per_sm=228 * _KB,
    shared_bytes_per_block_optin=227 * _KB,
    arch_source=f"{_GUIDE_13}; lanes: CUDA C++ Programming Guide 12.9, section Compute Capability "
    "10.0",
)  # fmt: skip

SM_103 = replace(
    SM_100, compute_capability=(10, 3), sm_arch="sm_103", fp64_lanes_per_sm=2,
    int32_lanes_per_sm=None, sfu_lanes_per_sm=None,
    arch_source=f"{_GUIDE_13}; FP32 lanes: CUDA C++ Best Practices Guide 13, table 'Throughput of "
    "Native Arithmetic Instructions'; no source for integer and special function lanes",
)  # fmt: skip

SM_120 = Architecture(
    compute_capability=(12, 0), sm_arch="sm_120", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=2,
    max_warps_per_sm=48, max_blocks_per_sm=24, max_threads_per_sm=1536,
    l1_shared_bytes_per_sm=128 * _KB, shared_bytes_per_sm=100 * _KB,
    shared_bytes_per_block_optin=99 * _KB,
    arch_source=f"{_GUIDE_13}; lanes: CUDA C++ Best Practices Guide 13, table 'Throughput of "
    "Native Arithmetic Instructions', column 12.0/12.1, where integer additions (128) and shifts "
    "(64) have no common rate",
)  # fmt: skip

SM_121 = replace(
    SM_120, compute_capability=(12, 1), sm_arch="sm_121", driver_tells_bandwidth=False,
    arch_source=f"As 12.0, in the same columns. {SM_120.arch_source}. Bandwidth: the 8533 MHz that "
    "a GB10's driver reports (deviceQuery) are its LPDDR5X's data rate already",
)  # fmt: skip

ARCHITECTURES: Mapping[tuple[int, int], Architecture] = MappingProxyType(
    {
        row.compute_capability: row
        for row in (SM_75, SM_80, SM_86, SM_89, SM_90, SM_100, SM_103, SM_120, SM_121)
    }
)
"""By compute capability, oldest first."""
