"""One row a device, one source a row: data sheets, whitepapers, and what a driver has printed.

`deviceQuery` is NVIDIA's CUDA sample of that name, run on such a device; its memory clock and bus
width give the bandwidth, `devices_driver.bandwidth_gb_s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType

from cudaops.cuda.devices_arch import SM_75, SM_80, SM_86, SM_89, SM_90, SM_100, SM_120, SM_121
from cudaops.cuda.devices_base import Device

_MB = 1024 * 1024

_DATACENTER = (
    Device(
        **asdict(SM_75), name="T4", full_name="Tesla T4", sm_count=40,
        sm_clock_mhz=1590.0, sm_clock_kind="boost", memory_gb=16.0, dram_bandwidth_gb_s=320.0,
        l2_bytes=4 * _MB,
        source="NVIDIA T4 datasheet (8.1 TFLOPS FP32, 320 GB/s, 16 GB); deviceQuery: 40 SMs, 1590 "
        "MHz, 5001 MHz x 256 bit, L2 4194304 bytes",
    ),
    Device(
        **asdict(SM_80), name="A100", full_name="NVIDIA A100-SXM4-80GB", sm_count=108,
        sm_clock_mhz=1410.0, sm_clock_kind="boost", memory_gb=80.0, dram_bandwidth_gb_s=2039.0,
        l2_bytes=40 * _MB, l2_read_bytes_per_clk=5120,
        source="NVIDIA A100 whitepaper (108 SMs, 1410 MHz, 40 MB L2, 5120 bytes/clk) and A100 80 "
        "GB SXM datasheet (2039 GB/s); deviceQuery: 1593 MHz x 5120 bit, L2 41943040 bytes",
    ),
    Device(
        **asdict(SM_80), name="A100-40GB", full_name="NVIDIA A100-SXM4-40GB", sm_count=108,
        sm_clock_mhz=1410.0, sm_clock_kind="boost", memory_gb=40.0, dram_bandwidth_gb_s=1555.0,
        l2_bytes=40 * _MB, l2_read_bytes_per_clk=5120,
        source="NVIDIA A100 whitepaper (108 SMs, 1410 MHz, 1555 GB/s, 40 MB L2, 5120 bytes/clk); "
        "deviceQuery of the PCIe card with the same memory: 1215 MHz x 5120 bit",
    ),
    Device(
        **asdict(SM_86), name="A10", full_name="NVIDIA A10", sm_count=72,
        sm_clock_mhz=1695.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=600.0,
        l2_bytes=6 * _MB,
        source="NVIDIA A10 datasheet (31.2 TFLOPS FP32, 600 GB/s, 24 GB); GA102 whitepaper (L2: "
        "512 KB for each of 12 memory controllers); 72 SMs: run in seed document 000",
    ),
    Device(
        **asdict(SM_86), name="A40", full_name="NVIDIA A40", sm_count=84,
        sm_clock_mhz=1740.0, sm_clock_kind="boost", memory_gb=48.0, dram_bandwidth_gb_s=696.0,
        l2_bytes=6 * _MB,
        source="NVIDIA A40 datasheet (37.4 TFLOPS FP32, 696 GB/s, 48 GB); deviceQuery: 84 SMs, "
        "1740 MHz, 7251 MHz x 384 bit, L2 6291456 bytes",
    ),
    Device(
        **asdict(SM_89), name="L4", full_name="NVIDIA L4", sm_count=58,
        sm_clock_mhz=2040.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=300.0,
        l2_bytes=48 * _MB,
        source="NVIDIA L4 datasheet (30.3 TFLOPS FP32, 300 GB/s, 24 GB); Ada whitepaper appendix "
        "on AD104 (48 MB L2)",
    ),
    Device(
        **asdict(SM_89), name="L40S", full_name="NVIDIA L40S", sm_count=142,
        sm_clock_mhz=2520.0, sm_clock_kind="boost", memory_gb=48.0, dram_bandwidth_gb_s=864.0,
        l2_bytes=96 * _MB,
        source="NVIDIA L40S datasheet (91.6 TFLOPS FP32, 864 GB/s, 48 GB); deviceQuery: 142 SMs, "
        "2520 MHz, 9001 MHz x 384 bit, L2 100663296 bytes",
    ),
    Device(
        **asdict(SM_90), name="H100", full_name="NVIDIA H100 80GB HBM3", sm_count=132,
        sm_clock_mhz=1980.0, sm_clock_kind="boost", memory_gb=80.0, dram_bandwidth_gb_s=3350.0,
        l2_bytes=50 * _MB,
        source="NVIDIA H100 SXM5 datasheet (67 TFLOPS FP32, 3.35 TB/s, 80 GB) and H100 whitepaper "
        "(132 SMs, 50 MB L2); 1980 MHz is what 67 TFLOPS of 132 SMs imply",
    ),
    Device(
        **asdict(SM_90), name="H100-PCIe", full_name="NVIDIA H100 PCIe", sm_count=114,
        sm_clock_mhz=1755.0, sm_clock_kind="boost", memory_gb=80.0, dram_bandwidth_gb_s=2039.0,
        l2_bytes=50 * _MB,
        source="NVIDIA H100 PCIe datasheet (51 TFLOPS FP32, 2 TB/s, 80 GB); deviceQuery: 114 SMs, "
        "1755 MHz, 1593 MHz x 5120 bit, L2 52428800 bytes",
    ),
    Device(
        **asdict(SM_90), name="H200", full_name="NVIDIA H200", sm_count=132,
        sm_clock_mhz=1980.0, sm_clock_kind="measured", memory_gb=150.11, dram_bandwidth_gb_s=4814.0,
        l2_bytes=62914560, l2_read_bytes_per_clk=6016, l2_clock_mhz=1708.0,
        source="Measured: tests/data/ncu (H200, driver 580.159.04, 2026-11-20). SMs, L2, memory "
        "and SM clock: device__attribute_*. DRAM: 6016 bit x 2 x 3201 MHz. L2 width: "
        "derived__lts__lts2xbar_bytes.sum.peak_sustained; L2 clock: lts__cycles_elapsed.avg over "
        "gpu__time_duration",
    ),
    Device(
        **asdict(SM_90), name="GH200", full_name="NVIDIA GH200 480GB", sm_count=132,
        sm_clock_mhz=1980.0, sm_clock_kind="boost", memory_gb=96.0, dram_bandwidth_gb_s=4023.0,
        l2_bytes=62914560,
        source="NVIDIA GH200 datasheet (67 TFLOPS FP32, 96 GB HBM3, 4 TB/s); deviceQuery: 132 SMs, "
        "1980 MHz, 2619 MHz x 6144 bit, L2 62914560 bytes",
    ),
    Device(
        **asdict(SM_100), name="B200", full_name="NVIDIA B200", sm_count=148,
        sm_clock_mhz=1965.0, sm_clock_kind="boost", memory_gb=180.0, dram_bandwidth_gb_s=7672.0,
        l2_bytes=132644864,
        source="NVIDIA HGX B200 datasheet (75 TFLOPS FP32 and 180 GB a GPU); driver: 148 SMs, L2 "
        "126.5 MiB, 3996 MHz x 7680 bit (pytorch/ao pull request 4002); 1965 MHz: nvidia-smi's "
        "highest SM clock",
    ),
)  # fmt: skip

_WORKSTATION = (
    Device(
        **asdict(SM_86), name="A6000", full_name="NVIDIA RTX A6000", sm_count=84,
        sm_clock_mhz=1800.0, sm_clock_kind="boost", memory_gb=48.0, dram_bandwidth_gb_s=768.0,
        l2_bytes=6 * _MB,
        source="NVIDIA RTX A6000 datasheet (38.7 TFLOPS FP32, 768 GB/s, 48 GB); deviceQuery: 84 "
        "SMs, 1800 MHz, 8001 MHz x 384 bit, L2 6291456 bytes",
    ),
    Device(
        **asdict(SM_86), name="RTX3060", full_name="NVIDIA GeForce RTX 3060", sm_count=28,
        sm_clock_mhz=1777.0, sm_clock_kind="boost", memory_gb=12.0, dram_bandwidth_gb_s=360.0,
        l2_bytes=2359296,
        source="NVIDIA product page, GeForce RTX 3060 12 GB (3584 cores, 1.78 GHz, 192 bit); "
        "deviceQuery: 28 SMs, 1777 MHz, 7501 MHz x 192 bit, L2 2359296 bytes",
    ),
    Device(
        **asdict(SM_86), name="RTX3070", full_name="NVIDIA GeForce RTX 3070", sm_count=46,
        sm_clock_mhz=1725.0, sm_clock_kind="boost", memory_gb=8.0, dram_bandwidth_gb_s=448.0,
        l2_bytes=4 * _MB,
        source="GA102 whitepaper, comparison table: GeForce RTX 3070 (46 SMs, 1725 MHz, 20.3 "
        "TFLOPS FP32, 448 GB/s, 4096 KB L2); deviceQuery: 7001 MHz x 256 bit, L2 4194304 bytes",
    ),
    Device(
        **asdict(SM_86), name="RTX3080", full_name="NVIDIA GeForce RTX 3080", sm_count=68,
        sm_clock_mhz=1710.0, sm_clock_kind="boost", memory_gb=10.0, dram_bandwidth_gb_s=760.0,
        l2_bytes=5 * _MB,
        source="GA102 whitepaper, comparison table: GeForce RTX 3080 10 GB (68 SMs, 1710 MHz, 29.8 "
        "TFLOPS FP32, 760 GB/s, 5120 KB L2); deviceQuery: 9501 MHz x 320 bit, L2 5242880 bytes",
    ),
    Device(
        **asdict(SM_86), name="RTX3090", full_name="NVIDIA GeForce RTX 3090", sm_count=82,
        sm_clock_mhz=1695.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=936.0,
        l2_bytes=6 * _MB,
        source="GA102 whitepaper, comparison table: GeForce RTX 3090 (82 SMs, 1695 MHz, 35.6 "
        "TFLOPS FP32, 936 GB/s, 6144 KB L2)",
    ),
    Device(
        **asdict(SM_89), name="RTX4080S", full_name="NVIDIA GeForce RTX 4080 SUPER", sm_count=80,
        sm_clock_mhz=2550.0, sm_clock_kind="boost", memory_gb=16.0, dram_bandwidth_gb_s=736.0,
        l2_bytes=64 * _MB,
        source="NVIDIA product page, GeForce RTX 4080 SUPER (10240 cores, 2.55 GHz, 52 TFLOPS, 256 "
        "bit); deviceQuery: 80 SMs, 2550 MHz, 11501 MHz x 256 bit, L2 67108864 bytes",
    ),
    Device(
        **asdict(SM_89), name="RTX4090", full_name="NVIDIA GeForce RTX 4090", sm_count=128,
        sm_clock_mhz=2520.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=1008.0,
        l2_bytes=72 * _MB,
        source="Ada whitepaper, comparison table: GeForce RTX 4090 (128 SMs, 2520 MHz, 82.6 TFLOPS "
        "FP32, 1008 GB/s, 73728 KB L2)",
    ),
    Device(
        **asdict(SM_120), name="RTX5090", full_name="NVIDIA GeForce RTX 5090", sm_count=170,
        sm_clock_mhz=2407.0, sm_clock_kind="boost", memory_gb=32.0, dram_bandwidth_gb_s=1792.0,
        l2_bytes=96 * _MB,
        source="RTX Blackwell whitepaper, comparison table: GeForce RTX 5090 (170 SMs, 2407 MHz, "
        "104.8 TFLOPS FP32, 1792 GB/s); deviceQuery: 14001 MHz x 512 bit, L2 100663296 bytes",
    ),
    Device(
        **asdict(SM_121), name="GB10", full_name="NVIDIA GB10", sm_count=48,
        sm_clock_mhz=2418.0, sm_clock_kind="driver", memory_gb=128.0, dram_bandwidth_gb_s=273.0,
        l2_bytes=24 * _MB,
        source="NVIDIA DGX Spark data sheet (128 GB LPDDR5x, 273 GB/s, shared with the processor); "
        "deviceQuery: 48 SMs, 2418 MHz, L2 25165824 bytes",
    ),
)  # fmt: skip

DEVICES: Mapping[str, Device] = MappingProxyType(
    {row.name: row for row in (*_DATACENTER, *_WORKSTATION)}
)
"""Known devices by short name. `docs/adding-a-device.md` says how a row is added."""

DEFAULT_DEVICE_BY_ARCH: Mapping[str, str] = MappingProxyType(
    {
        "sm_75": "T4", "sm_80": "A100", "sm_86": "A10", "sm_89": "L4", "sm_90": "H200",
        "sm_100": "B200", "sm_120": "RTX5090", "sm_121": "GB10",
    }
)  # fmt: skip
"""The device meant where only an nvcc target is known."""
