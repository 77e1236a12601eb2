"""THE metric table: every metric cudaops knows, by ncu's raw name. One row, one constant, no name
typed twice.

First the rows that ncu's details page prints under `--set full`, then the counters behind it, which
only the raw page holds. Labels and raw names of the details page were matched by value on the two
captures of tests/data/ncu and by the section definitions inside the report file;
`tests/cuda/test_metrics.py` repeats the match by value.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from cudaops.domain.profile import Metric, MetricSource
from cudaops.errors import InputError


class MetricDef(NamedTuple):
    """One metric: ncu's name for it and what it says."""

    name: str
    """ncu's raw name, the key everywhere in cudaops."""
    label: str
    """As a person reads it; for rows of the details page exactly as ncu prints it."""
    unit: str
    """Canonical: %, us, byte, byte/s, hz, cycle, inst, ...; `text` for words, empty for counts."""
    section: str
    """Section of ncu's details page; for raw-only metrics the topic."""
    meaning: str
    on_details_page: bool = False
    aliases: tuple[str, ...] = ()
    """What other versions of ncu print under this label. Another counter or another denominator,
    so a value under such a name stays there and is never taken for this metric's."""
    also_shown: tuple[tuple[str, str], ...] = ()
    """Further (section, label) pairs of the details page that print this metric."""
    not_on: str = ""
    """Where the metric is known to be missing; empty: it is in the captures of tests/data/ncu."""


Row = Callable[..., str]


def section_rows(rows: list[MetricDef], section: str, *, on_details_page: bool = True) -> Row:
    """A function that appends a row of this section to `rows` and returns the row's name."""

    def row(
        name: str,
        label: str,
        unit: str,
        meaning: str,
        *,
        aliases: tuple[str, ...] = (),
        also_shown: tuple[tuple[str, str], ...] = (),
        not_on: str = "",
    ) -> str:
        rows.append(
            MetricDef(
                name, label, unit, section, meaning, on_details_page, aliases, also_shown, not_on
            )
        )
        return name

    return row


DETAILS_ROWS: list[MetricDef] = []

# fmt: off

_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"
_DISTRIBUTION = "GPU and Memory Workload Distribution"

_sol = section_rows(DETAILS_ROWS, "GPU Speed Of Light Throughput")
DRAM_FREQUENCY = _sol("dram__cycles_elapsed.avg.per_second", "DRAM Frequency", "hz",
    "Clock of device memory during the launch.")
SM_FREQUENCY = _sol("gpc__cycles_elapsed.avg.per_second", "SM Frequency", "hz",
    "Clock of the processors during the launch.", aliases=("smsp__cycles_elapsed.avg.per_second",))
ELAPSED_CYCLES = _sol("gpc__cycles_elapsed.max", "Elapsed Cycles", "cycle",
    "Cycles from the launch's start to its end.")
MEMORY_THROUGHPUT = _sol("gpu__compute_memory_throughput" + _ELAPSED, "Memory Throughput", "%",
    "Use of the busiest part of the memory system, L1 to DRAM, against its peak.")
DRAM_THROUGHPUT = _sol("gpu__dram_throughput" + _ELAPSED, "DRAM Throughput", "%",
    "Use of device memory's bandwidth against its peak.")
DURATION = _sol("gpu__time_duration.sum", "Duration", "us",
    "Time of the launch by the GPU's clock, under the profiler.")
L1_THROUGHPUT = _sol("l1tex__throughput" + _ACTIVE, "L1/TEX Cache Throughput", "%",
    "Use of the busiest part of L1/TEX (tags, data path, write-back) while an SM is active.")
L2_THROUGHPUT = _sol("lts__throughput" + _ELAPSED, "L2 Cache Throughput", "%",
    "Use of the busiest part of the L2 slices against its peak.")
SM_ACTIVE_CYCLES = _sol("sm__cycles_active.avg", "SM Active Cycles", "cycle",
    "Cycles with at least one warp on an SM, mean over SMs.",
    also_shown=((_DISTRIBUTION, "Average SM Active Cycles"),))
SM_THROUGHPUT = _sol("sm__throughput" + _ELAPSED, "Compute (SM) Throughput", "%",
    "Use of the busiest part of the SM (issue, a pipe, the load/store path) against its peak.")

_pm = section_rows(DETAILS_ROWS, "PM Sampling")
PM_BUFFER = _pm("profiler__pmsampler_buffer_size_bytes", "Maximum Buffer Size", "byte",
    "Buffer of the periodic sampler; says nothing about the kernel.")
PM_INTERVAL = _pm("profiler__pmsampler_interval_time", "Maximum Sampling Interval", "us",
    "Period of the sampler.")
PM_GROUPS = _pm("profiler__pmsampler_pass_groups", "# Pass Groups", "",
    "Replays the sampler needed.")

_compute = section_rows(DETAILS_ROWS, "Compute Workload Analysis")
EXECUTED_IPC_ACTIVE = _compute("sm__inst_executed.avg.per_cycle_active", "Executed Ipc Active",
    "inst/cycle", "Warp instructions executed a cycle and SM while the SM is active.")
EXECUTED_IPC_ELAPSED = _compute("sm__inst_executed.avg.per_cycle_elapsed", "Executed Ipc Elapsed",
    "inst/cycle", "Warp instructions executed a cycle and SM over the whole launch.")
ISSUE_SLOTS_BUSY = _compute("sm__inst_issued" + _ELAPSED, "Issue Slots Busy", "%",
    "Share of issue slots used.", aliases=("sm__inst_issued" + _ACTIVE,))
ISSUED_IPC_ACTIVE = _compute("sm__inst_issued.avg.per_cycle_active", "Issued Ipc Active",
    "inst/cycle", "Warp instructions issued a cycle and SM, replays included.")
SM_BUSY = _compute("sm__instruction_throughput" + _ELAPSED, "SM Busy", "%",
    "Use of the busiest of issue and instruction pipes.",
    aliases=("sm__instruction_throughput" + _ACTIVE,))

_memory = section_rows(DETAILS_ROWS, "Memory Workload Analysis")
SPILL_REQUESTS = _memory("derived__local_spilling_requests", "Local Memory Spilling Requests", "",
    "Load and store requests that exist only because registers did not suffice.")
SPILL_OVERHEAD = _memory("derived__local_spilling_requests_pct",
    "Local Memory Spilling Request Overhead", "%", "Share of such requests in all L1 requests.")
DRAM_BYTES_PER_SECOND = _memory("dram__bytes.sum.per_second", "Memory Throughput", "byte/s",
    "Bytes a second between L2 and device memory.")
MEM_BUSY = _memory("gpu__compute_memory_access_throughput" + _ELAPSED, "Mem Busy", "%",
    "Use of the busiest cache or memory unit inside the memory system.")
MAX_BANDWIDTH = _memory("gpu__compute_memory_request_throughput" + _ELAPSED, "Max Bandwidth", "%",
    "Use of the busiest link between units of the memory system.")
L1_HIT_RATE = _memory("l1tex__t_sector_hit_rate.pct", "L1/TEX Hit Rate", "%",
    "Sectors found in L1 among those looked up; shared memory does not count.")
L2_PERSISTING = _memory("launch__persisting_l2_cache_size", "L2 Persisting Size", "byte",
    "Part of L2 set aside for persisting accesses.")
L2_COMPRESSION_SUCCESS = _memory("lrc__average_ilc_input_sector_success_rate.pct",
    "L2 Compression Success Rate", "%", "Sectors that compressed among those tried.",
    aliases=("lts__average_gcomp_input_sector_success_rate.pct",))
L2_COMPRESSION_RATIO = _memory("lrc__average_ilc_output_sector_compression_achieved_rate.pct",
    "L2 Compression Ratio", "%", "How much smaller compressed sectors became.")
L2_COMPRESSION_INPUT = _memory("lrc__ilc_input_sectors.sum", "L2 Compression Input Sectors",
    "sector", "Sectors sent to the compression unit.", aliases=("lts__gcomp_input_sectors.sum",))
L2_HIT_RATE = _memory("lts__t_sector_hit_rate.pct", "L2 Hit Rate", "%",
    "Sectors found in L2 among those looked up.")
MEM_PIPES_BUSY = _memory("sm__memory_throughput" + _ELAPSED, "Mem Pipes Busy", "%",
    "Use of the SM's busiest memory instruction pipe (LSU, TEX, uniform).")

_scheduler = section_rows(DETAILS_ROWS, "Scheduler Statistics")
ONE_OR_MORE_ELIGIBLE = _scheduler("smsp__issue_active" + _ACTIVE, "One or More Eligible", "%",
    "Cycles in which a scheduler had a warp ready and issued.")
ISSUED_WARP = _scheduler("smsp__issue_active.avg.per_cycle_active", "Issued Warp Per Scheduler", "",
    "Warp instructions a scheduler issued a cycle, at most 1.")
NO_ELIGIBLE = _scheduler("smsp__issue_inst0" + _ACTIVE, "No Eligible", "%",
    "Cycles in which no warp of a scheduler was ready.")
ACTIVE_WARPS_SCHEDULER = _scheduler("smsp__warps_active.avg.per_cycle_active",
    "Active Warps Per Scheduler", "warp", "Warps resident on a scheduler.")
ELIGIBLE_WARPS = _scheduler("smsp__warps_eligible.avg.per_cycle_active",
    "Eligible Warps Per Scheduler", "warp", "Resident warps ready to issue.")

_warp = section_rows(DETAILS_ROWS, "Warp State Statistics")
CYCLES_PER_ISSUE = _warp("smsp__average_warp_latency_per_inst_issued.ratio",
    "Warp Cycles Per Issued Instruction", "cycle",
    "Cycles a warp spends for each instruction it issues; the stall reasons add up to it.")
CYCLES_PER_EXECUTED = _warp("smsp__average_warps_active_per_inst_executed.ratio",
    "Warp Cycles Per Executed Instruction", "cycle",
    "The same for each instruction executed, replays not counted.")
ACTIVE_THREADS = _warp("smsp__thread_inst_executed_per_inst_executed.ratio",
    "Avg. Active Threads Per Warp", "thread",
    "Threads of a warp that take part in an instruction; 32 without divergence.")
PRED_ON_THREADS = _warp("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "Avg. Not Predicated Off Threads Per Warp", "thread",
    "The same without those whose predicate switched the instruction off.")

_inst = section_rows(DETAILS_ROWS, "Instruction Statistics")
INST_EXECUTED_AVG = _inst("smsp__inst_executed.avg", "Avg. Executed Instructions Per Scheduler",
    "inst", "Warp instructions executed, mean over schedulers.")
INST_EXECUTED = _inst("smsp__inst_executed.sum", "Executed Instructions", "inst",
    "Warp instructions executed by the whole launch.")
INST_ISSUED_AVG = _inst("smsp__inst_issued.avg", "Avg. Issued Instructions Per Scheduler", "inst",
    "Warp instructions issued, mean over schedulers.")
INST_ISSUED = _inst("smsp__inst_issued.sum", "Issued Instructions", "inst",
    "Warp instructions issued by the whole launch.")

_launch = section_rows(DETAILS_ROWS, "Launch Statistics")
BLOCK_SIZE = _launch("launch__block_size", "Block Size", "", "Threads a block.")
CLUSTER_POLICY = _launch("launch__cluster_scheduling_policy", "Cluster Scheduling Policy", "text",
    "How clusters are placed.")
CLUSTER_SIZE = _launch("launch__cluster_size", "Cluster Size", "", "Blocks a cluster, 0 for none.")
CACHE_CONFIG = _launch("launch__func_cache_config", "Function Cache Configuration", "text",
    "Preference between L1 and shared memory set on the function.")
GRID_SIZE = _launch("launch__grid_size", "Grid Size", "", "Blocks of the launch.")
REGISTERS = _launch("launch__registers_per_thread", "Registers Per Thread", "register/thread",
    "Registers the compiler gave each thread.")
SHARED_CONFIG = _launch("launch__shared_mem_config_size", "Shared Memory Configuration Size",
    "byte", "Shared part of the L1 that the driver chose for the launch.")
SHARED_DRIVER = _launch("launch__shared_mem_per_block_driver", "Driver Shared Memory Per Block",
    "byte/block", "What the driver takes of each block's shared memory.")
SHARED_DYNAMIC = _launch("launch__shared_mem_per_block_dynamic", "Dynamic Shared Memory Per Block",
    "byte/block", "Shared memory asked for at the launch.")
SHARED_STATIC = _launch("launch__shared_mem_per_block_static", "Static Shared Memory Per Block",
    "byte/block", "Shared memory declared in the kernel.")
SM_COUNT = _launch("launch__sm_count", "# SMs", "SM", "SMs the launch could use.")
STACK_SIZE = _launch("launch__stack_size", "Stack Size", "byte", "Stack limit a thread.")
THREADS = _launch("launch__thread_count", "Threads", "thread", "Threads of the launch.")
TPC_COUNT = _launch("launch__tpc_count", "# TPCs", "", "TPCs (pairs of SMs) it could use.")
TPC_ENABLED = _launch("launch__tpc_enabled", "Enabled TPC IDs", "text", "Which TPCs.")
GREEN_CONTEXT = _launch("launch__uses_green_context", "Uses Green Context", "",
    "1 where the context owns only part of the device.")
WAVES = _launch("launch__waves_per_multiprocessor", "Waves Per SM", "",
    "Blocks of the grid over blocks the device holds at once; below 1 the device is not filled.")

_occ = section_rows(DETAILS_ROWS, "Occupancy")
MAX_CLUSTERS = _occ("launch__cluster_max_active", "Max Active Clusters", "cluster",
    "Clusters the device holds at once.")
MAX_CLUSTER_SIZE = _occ("launch__cluster_max_potential_size", "Max Cluster Size", "block",
    "Largest cluster the kernel could have.")
GPU_OCCUPANCY = _occ("launch__occupancy_cluster_gpu_pct", "Overall GPU Occupancy", "%",
    "Occupancy of the device by clusters, 0 without clusters.")
CLUSTER_OCCUPANCY = _occ("launch__occupancy_cluster_pct", "Cluster Occupancy", "%",
    "Active clusters against the possible, 0 without clusters.")
LIMIT_BARRIERS = _occ("launch__occupancy_limit_barriers", "Block Limit Barriers", "block",
    "Blocks an SM that hardware barriers allow.")
LIMIT_BLOCKS = _occ("launch__occupancy_limit_blocks", "Block Limit SM", "block",
    "Blocks an SM that the SM allows at all.")
LIMIT_REGISTERS = _occ("launch__occupancy_limit_registers", "Block Limit Registers", "block",
    "Blocks an SM that registers allow.")
LIMIT_SHARED = _occ("launch__occupancy_limit_shared_mem", "Block Limit Shared Mem", "block",
    "Blocks an SM that the configured shared memory allows.")
LIMIT_WARPS = _occ("launch__occupancy_limit_warps", "Block Limit Warps", "block",
    "Blocks an SM that warp slots allow.")
THEORETICAL_WARPS = _occ("sm__maximum_warps_avg_per_active_cycle",
    "Theoretical Active Warps per SM", "warp", "Warps an SM holds under the tightest limit.")
THEORETICAL_OCCUPANCY = _occ("sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy",
    "%", "The same against the warp slots there are.")
ACHIEVED_OCCUPANCY = _occ("sm__warps_active" + _ACTIVE, "Achieved Occupancy", "%",
    "Warps really resident against the warp slots there are.")
ACHIEVED_WARPS = _occ("sm__warps_active.avg.per_cycle_active", "Achieved Active Warps Per SM",
    "warp", "Warps really resident on an SM.")

_dist = section_rows(DETAILS_ROWS, _DISTRIBUTION)
DRAM_ACTIVE_CYCLES = _dist("dram__cycles_active.avg", "Average DRAM Active Cycles", "cycle",
    "DRAM cycles with traffic, mean over channels.")
DRAM_ELAPSED_TOTAL = _dist("dram__cycles_elapsed.sum", "Total DRAM Elapsed Cycles", "cycle",
    "DRAM cycles of all channels.")
L1_ACTIVE_CYCLES = _dist("l1tex__cycles_active.avg", "Average L1 Active Cycles", "cycle",
    "Cycles with work in L1/TEX, mean over SMs.")
L1_ELAPSED_TOTAL = _dist("l1tex__cycles_elapsed.sum", "Total L1 Elapsed Cycles", "cycle",
    "L1 cycles of all SMs.")
L2_ACTIVE_CYCLES = _dist("lts__cycles_active.avg", "Average L2 Active Cycles", "cycle",
    "Cycles with work in an L2 slice, mean over slices.")
L2_ELAPSED_TOTAL = _dist("lts__cycles_elapsed.sum", "Total L2 Elapsed Cycles", "cycle",
    "L2 cycles of all slices.")
SM_ELAPSED_TOTAL = _dist("sm__cycles_elapsed.sum", "Total SM Elapsed Cycles", "cycle",
    "SM cycles of all SMs.")
SMSP_ACTIVE_CYCLES = _dist("smsp__cycles_active.avg", "Average SMSP Active Cycles", "cycle",
    "Cycles with a warp on a scheduler, mean over schedulers.")
SMSP_ELAPSED_TOTAL = _dist("smsp__cycles_elapsed.sum", "Total SMSP Elapsed Cycles", "cycle",
    "Scheduler cycles of all schedulers.")

_source = section_rows(DETAILS_ROWS, "Source Counters")
BRANCH_RATIO = _source("derived__smsp__inst_executed_op_branch_pct", "Branch Instructions Ratio",
    "%", "Branches among executed instructions, as a fraction of 1 despite the unit ncu prints.")
BRANCHES = _source("smsp__inst_executed_op_branch.sum", "Branch Instructions", "inst",
    "Branch instructions executed by warps.")
BRANCH_EFFICIENCY = _source("smsp__sass_average_branch_targets_threads_uniform.pct",
    "Branch Efficiency", "%", "Branches at which all threads of the warp went the same way.")
DIVERGENT_BRANCHES = _source("smsp__sass_branch_targets_threads_divergent.avg",
    "Avg. Divergent Branches", "branches", "Branches that split a warp, mean over schedulers.")
# fmt: on


COUNTER_ROWS: list[MetricDef] = []

_PTXAS = "ncu: ptxas prints it when it compiles, and it is known only where ncu could not measure"
_NOT_IN_SET = "`--set full` of ncu 2025.3.1 on an H200; ncu collects it by name with `--metrics`"


# fmt: off
_pipes = section_rows(COUNTER_ROWS, "Pipe utilisation", on_details_page=False)
PIPE_FMA = _pipes("sm__pipe_fma_cycles_active" + _ACTIVE, "FMA pipe", "%",
    "Use of the single-precision multiply-add pipe (FFMA, FADD, FMUL, IMAD).")
PIPE_ALU = _pipes("sm__pipe_alu_cycles_active" + _ACTIVE, "ALU pipe", "%",
    "Use of the integer, logic and comparison pipe.")
PIPE_FP64 = _pipes("sm__pipe_fp64_cycles_active" + _ACTIVE, "FP64 pipe", "%",
    "Use of the double-precision pipe.")
PIPE_TENSOR = _pipes("sm__pipe_tensor_cycles_active" + _ACTIVE, "Tensor pipe", "%",
    "Use of the matrix units.")
PIPE_XU = _pipes("sm__inst_executed_pipe_xu" + _ACTIVE, "XU pipe", "%",
    "Use of the special-function and conversion pipe.")
PIPE_LSU = _pipes("sm__inst_executed_pipe_lsu" + _ACTIVE, "LSU pipe", "%",
    "Use of the load/store instruction pipe.")
PIPE_TEX = _pipes("sm__inst_executed_pipe_tex" + _ACTIVE, "TEX pipe", "%",
    "Use of the texture instruction pipe.")
INST_FMA = _pipes("sm__inst_executed_pipe_fma.sum", "FMA pipe instructions", "inst",
    "Warp instructions the FMA pipe executed.", not_on=_NOT_IN_SET)
INST_ALU = _pipes("sm__inst_executed_pipe_alu.sum", "ALU pipe instructions", "inst",
    "Warp instructions the ALU pipe executed.", not_on=_NOT_IN_SET)
INST_FP64 = _pipes("sm__inst_executed_pipe_fp64.sum", "FP64 pipe instructions", "inst",
    "Warp instructions the FP64 pipe executed.", not_on=_NOT_IN_SET)
INST_XU = _pipes("sm__inst_executed_pipe_xu.sum", "XU pipe instructions", "inst",
    "Warp instructions the XU pipe executed.", not_on=_NOT_IN_SET)
INST_LSU = _pipes("sm__inst_executed_pipe_lsu.sum", "LSU pipe instructions", "inst",
    "Warp instructions the load/store pipe executed.", not_on=_NOT_IN_SET)
INST_TENSOR = _pipes("sm__inst_executed_pipe_tensor.sum", "Tensor pipe instructions", "inst",
    "Warp instructions the tensor pipe executed.", not_on=_NOT_IN_SET)

_flops = section_rows(COUNTER_ROWS, "Floating-point operations", on_details_page=False)
FFMA = _flops("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "FFMA", "inst", "Single-precision multiply-adds by threads.", not_on=_NOT_IN_SET)
FFMA_PER_CYCLE = _flops(
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed",
    "FFMA per cycle", "inst/cycle", "The same a cycle, whole device.")
FADD = _flops("smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "FADD", "inst", "Single-precision additions by threads.", not_on=_NOT_IN_SET)
FADD_PER_CYCLE = _flops(
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed",
    "FADD per cycle", "inst/cycle", "The same a cycle, whole device.")
FMUL = _flops("smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "FMUL", "inst", "Single-precision multiplications by threads.", not_on=_NOT_IN_SET)
FMUL_PER_CYCLE = _flops(
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed",
    "FMUL per cycle", "inst/cycle", "The same a cycle, whole device.")
DFMA = _flops("smsp__sass_thread_inst_executed_op_dfma_pred_on.sum",
    "DFMA", "inst", "Double-precision multiply-adds by threads.", not_on=_NOT_IN_SET)
DFMA_PER_CYCLE = _flops(
    "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum.per_cycle_elapsed",
    "DFMA per cycle", "inst/cycle", "The same a cycle, whole device.")
DADD = _flops("smsp__sass_thread_inst_executed_op_dadd_pred_on.sum",
    "DADD", "inst", "Double-precision additions by threads.", not_on=_NOT_IN_SET)
DADD_PER_CYCLE = _flops(
    "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum.per_cycle_elapsed",
    "DADD per cycle", "inst/cycle", "The same a cycle, whole device.")
DMUL = _flops("smsp__sass_thread_inst_executed_op_dmul_pred_on.sum",
    "DMUL", "inst", "Double-precision multiplications by threads.", not_on=_NOT_IN_SET)
DMUL_PER_CYCLE = _flops(
    "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum.per_cycle_elapsed",
    "DMUL per cycle", "inst/cycle", "The same a cycle, whole device.")
HFMA = _flops("smsp__sass_thread_inst_executed_op_hfma_pred_on.sum",
    "HFMA", "inst", "Half-precision multiply-adds by threads.", not_on=_NOT_IN_SET)
HFMA_PER_CYCLE = _flops(
    "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum.per_cycle_elapsed",
    "HFMA per cycle", "inst/cycle", "The same a cycle, whole device.")
HADD = _flops("smsp__sass_thread_inst_executed_op_hadd_pred_on.sum",
    "HADD", "inst", "Half-precision additions by threads.", not_on=_NOT_IN_SET)
HADD_PER_CYCLE = _flops(
    "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum.per_cycle_elapsed",
    "HADD per cycle", "inst/cycle", "The same a cycle, whole device.")
HMUL = _flops("smsp__sass_thread_inst_executed_op_hmul_pred_on.sum",
    "HMUL", "inst", "Half-precision multiplications by threads.", not_on=_NOT_IN_SET)
HMUL_PER_CYCLE = _flops(
    "smsp__sass_thread_inst_executed_op_hmul_pred_on.sum.per_cycle_elapsed",
    "HMUL per cycle", "inst/cycle", "The same a cycle, whole device.")

_cycles = section_rows(COUNTER_ROWS, "Cycles", on_details_page=False)
SMSP_CYCLES_ELAPSED = _cycles("smsp__cycles_elapsed.avg", "Scheduler cycles elapsed", "cycle",
    "Cycles of the launch; per-cycle counters times this give counts.")

_dram = section_rows(COUNTER_ROWS, "DRAM", on_details_page=False)
DRAM_READ_BYTES = _dram("dram__bytes_read.sum", "DRAM bytes read", "byte",
    "Bytes device memory delivered.")
DRAM_WRITE_BYTES = _dram("dram__bytes_write.sum", "DRAM bytes written", "byte",
    "Bytes device memory took; writes that still sit in L2 do not count.")
DRAM_THROUGHPUT_OLD = _dram("dram__throughput" + _ELAPSED, "DRAM throughput (dram unit)", "%",
    "Use of device memory as the dram unit itself counts it.",
    not_on="the H200: a missing metric stays missing; gpu__dram_throughput is there")

_l1 = section_rows(COUNTER_ROWS, "L1", on_details_page=False)
L1_DATA_PIPE = _l1("l1tex__data_pipe_lsu_wavefronts" + _ELAPSED, "L1 data path", "%",
    "Use of the L1/shared data path by wavefronts of load/store instructions.")
L1_LSUIN = _l1("l1tex__lsuin_requests" + _ELAPSED, "LSU requests", "%",
    "Use of the entry from the load/store pipe into L1.")
GLOBAL_LD_REQUESTS = _l1("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "Global load requests", "", "Warp-wide global loads that reached L1.")
GLOBAL_LD_SECTORS = _l1("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "Global load sectors",
    "sector", "32-byte sectors those loads touched.")
GLOBAL_LD_HIT_RATE = _l1("l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct",
    "Global load L1 hit rate", "%", "Of those sectors, the share found in L1.")
GLOBAL_LD_WAVEFRONTS = _l1("l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ld.sum",
    "Global load tag wavefronts", "", "Passes through the tag stage that global loads took.")
GLOBAL_ST_REQUESTS = _l1("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "Global store requests", "", "Warp-wide global stores that reached L1.")
GLOBAL_ST_SECTORS = _l1("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", "Global store sectors",
    "sector", "32-byte sectors those stores touched.")
GLOBAL_RED_REQUESTS = _l1("l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "Global reduction requests", "", "Warp-wide atomics without a result that reached L1.")
GLOBAL_ATOM_REQUESTS = _l1("l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    "Global atomic requests", "", "Warp-wide atomics with a result that reached L1.")
LOCAL_LD_SECTORS = _l1("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "Local load sectors",
    "sector", "Sectors of local memory read: spills and indexed local arrays.")
LOCAL_ST_SECTORS = _l1("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", "Local store sectors",
    "sector", "Sectors of local memory written.")
BYTES_PER_SECTOR_LD = _l1(
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    "Bytes used per sector, global loads", "byte/sector",
    "Of each 32-byte sector a global load touches, the bytes some thread uses.")
BYTES_PER_SECTOR_ST = _l1(
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
    "Bytes used per sector, global stores", "byte/sector", "The same for global stores.")

_shared = section_rows(COUNTER_ROWS, "Shared memory", on_details_page=False)
SHARED_WAVEFRONTS = _shared("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "Shared wavefronts", "", "Passes through the data path for shared memory.")
SHARED_DATA_PIPE = _shared(
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "L1 data path by shared memory", "%", "Use of the data path by shared memory alone.")
SHARED_LD_WAVEFRONTS = _shared("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "Shared load wavefronts", "", "The same, loads only.")
SHARED_ST_WAVEFRONTS = _shared("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "Shared store wavefronts", "", "The same, stores only.")
BANK_CONFLICTS = _shared("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "Shared bank conflicts", "", "Wavefronts beyond the first of a conflict-free access.")
BANK_CONFLICTS_LD = _shared("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "Shared load bank conflicts", "", "The same, loads only.")
BANK_CONFLICTS_ST = _shared("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "Shared store bank conflicts", "", "The same, stores only.")
SHARED_WAVEFRONTS_IDEAL = _shared("memory_l1_wavefronts_shared_ideal", "Ideal shared wavefronts",
    "sector", "Wavefronts the shared accesses would take without conflicts.")
SHARED_LD_INST = _shared("smsp__sass_inst_executed_op_shared_ld.sum", "Shared loads", "inst",
    "Warp-wide shared loads.")
SHARED_ST_INST = _shared("smsp__sass_inst_executed_op_shared_st.sum", "Shared stores", "inst",
    "Warp-wide shared stores.")
SHARED_ATOMICS = _shared("smsp__inst_executed_op_shared_atom.sum", "Shared atomics", "inst",
    "Warp-wide atomics on shared memory.")

_l2 = section_rows(COUNTER_ROWS, "L2", on_details_page=False)
L2_SECTORS = _l2("lts__t_sectors.sum", "L2 sectors", "sector", "Sectors looked up in L2.")
L2_READ_SECTORS = _l2("lts__t_sectors_srcunit_tex_op_read.sum", "L2 read sectors", "sector",
    "Sectors L1 read from L2.")
L2_WRITE_SECTORS = _l2("lts__t_sectors_srcunit_tex_op_write.sum", "L2 write sectors", "sector",
    "Sectors L1 wrote to L2.")
L2_RED_SECTORS = _l2("lts__t_sectors_srcunit_tex_op_red.sum", "L2 reduction sectors", "sector",
    "Sectors of atomics without a result.")
L2_ATOM_SECTORS = _l2("lts__t_sectors_srcunit_tex_op_atom.sum", "L2 atomic sectors", "sector",
    "Sectors of atomics with a result.")
L2_ATOMIC_UNIT = _l2("lts__d_atomic_input_cycles_active" + _ELAPSED, "L2 atomic unit", "%",
    "Use of the units in L2 that carry out atomics.")

_access = section_rows(COUNTER_ROWS, "Memory instructions", on_details_page=False)
GLOBAL_LD_INST = _access("smsp__sass_inst_executed_op_global_ld.sum", "Global loads", "inst",
    "Warp-wide global loads executed.")
GLOBAL_ST_INST = _access("smsp__sass_inst_executed_op_global_st.sum", "Global stores", "inst",
    "Warp-wide global stores executed.")
LOCAL_LD_INST = _access("smsp__sass_inst_executed_op_local_ld.sum", "Local loads", "inst",
    "Warp-wide local loads executed.")
LOCAL_ST_INST = _access("smsp__sass_inst_executed_op_local_st.sum", "Local stores", "inst",
    "Warp-wide local stores executed.")

_geometry = section_rows(COUNTER_ROWS, "Launch geometry", on_details_page=False)
SHARED_PER_BLOCK = _geometry("launch__shared_mem_per_block", "Shared memory per block",
    "byte/block", "Static, dynamic and driver shared memory of a block together.")
BARRIERS_PER_BLOCK = _geometry("launch__barrier_count", "Barriers per block", "",
    "Hardware barriers a block uses; 0: no __syncthreads.")
GRID_DIM_X = _geometry("launch__grid_dim_x", "Grid x", "",
    "Extent of the grid in x, in blocks.")
GRID_DIM_Y = _geometry("launch__grid_dim_y", "Grid y", "",
    "Extent of the grid in y, in blocks.")
GRID_DIM_Z = _geometry("launch__grid_dim_z", "Grid z", "",
    "Extent of the grid in z, in blocks.")
BLOCK_DIM_X = _geometry("launch__block_dim_x", "Block x", "",
    "Extent of the block in x, in threads.")
BLOCK_DIM_Y = _geometry("launch__block_dim_y", "Block y", "",
    "Extent of the block in y, in threads.")
BLOCK_DIM_Z = _geometry("launch__block_dim_z", "Block z", "",
    "Extent of the block in z, in threads.")

_compiler = section_rows(COUNTER_ROWS, "Compiler", on_details_page=False)
STACK_BYTES = _compiler("ptxas__stack_bytes", "Stack a thread", "byte",
    "Local arrays and calls that did not fit into registers.", not_on=_PTXAS)
SPILL_STORE_BYTES = _compiler("ptxas__spill_store_bytes", "Spilled bytes stored", "byte",
    "Bytes of registers a thread puts aside, wherever that stands in its code.", not_on=_PTXAS)
SPILL_LOAD_BYTES = _compiler("ptxas__spill_load_bytes", "Spilled bytes loaded", "byte",
    "The same, fetched again.", not_on=_PTXAS)

_stall = section_rows(COUNTER_ROWS, "Warp stalls", on_details_page=False)


def _stalled(reason: str, meaning: str) -> str:
    """A stall reason's row: warps that wait for it at each instruction issued, which by Little's
    law is the same as cycles a warp waits for each of its instructions."""
    name = f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    return _stall(name, f"Stall: {reason.replace('_', ' ')}", "inst", meaning)


STALL_BARRIER = _stalled("barrier", "Waiting at a barrier for other warps of the block.")
STALL_BRANCH = _stalled("branch_resolving", "Waiting for a branch target.")
STALL_DISPATCH = _stalled("dispatch_stall", "The dispatcher holds the warp back.")
STALL_DRAIN = _stalled("drain", "Waiting at the end for stores to leave.")
STALL_GMMA = _stalled("gmma", "Waiting for a warpgroup matrix instruction.")
STALL_IMC = _stalled("imc_miss", "Waiting for a constant that missed its cache.")
STALL_LG = _stalled("lg_throttle", "The queue for global and local memory is full.")
STALL_LONG = _stalled("long_scoreboard", "Waiting for data from L1, L2 or DRAM.")
STALL_MATH = _stalled("math_pipe_throttle", "Waiting for an arithmetic pipe.")
STALL_MEMBAR = _stalled("membar", "Waiting at a memory fence.")
STALL_MIO = _stalled("mio_throttle", "The queue for shared memory and special functions is full.")
STALL_MISC = _stalled("misc", "Other reasons.")
STALL_NO_INST = _stalled("no_instruction", "Waiting for an instruction fetch.")
STALL_NOT_SELECTED = _stalled("not_selected", "Ready, but another warp was issued.")
STALL_SELECTED = _stalled("selected", "Issuing.")
STALL_SHORT = _stalled("short_scoreboard", "Waiting for shared memory or a special function.")
STALL_SLEEPING = _stalled("sleeping", "All threads sleep or have left.")
STALL_TEX = _stalled("tex_throttle", "The texture queue is full.")
STALL_WAIT = _stalled("wait", "Fixed latency of the previous instruction.")
# fmt: on


METRICS: Mapping[str, MetricDef] = MappingProxyType(
    {row.name: row for row in (*DETAILS_ROWS, *COUNTER_ROWS)}
)
"""By raw name; the constants above hold the names."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {alias: row.name for row in METRICS.values() for alias in row.aliases}
)
"""What other ncu versions print under a label, to the name used here: same unit, same meaning, not
the same measurement."""

BY_LABEL: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        shown: row.name
        for row in DETAILS_ROWS
        for shown in ((row.section, row.label), *row.also_shown)
    }
)
"""(section, label) of ncu's details page to the raw name."""


def metric_def(name: str) -> MetricDef:
    """The row of a raw name or of an older version's name for it.

    Raises:
        InputError: unknown; names the nearest ones.
    """
    row = METRICS.get(ALIASES.get(name, name))
    if row is None:
        near = ", ".join(nearest_names(name))
        hint = f"; nearest: {near}" if near else ""
        raise InputError(f"unknown metric {name!r}{hint}")
    return row


def nearest_names(name: str) -> tuple[str, ...]:
    """At most 3 raw names closest to a name or a label, closest first."""
    by_text = {row.name.lower(): row.name for row in METRICS.values()}
    by_text.update({row.label.lower(): row.name for row in METRICS.values()})
    wanted = name.lower().strip()
    containing = [n for text, n in by_text.items() if wanted and wanted in text]
    close = difflib.get_close_matches(wanted, by_text, n=6, cutoff=0.5)
    found = dict.fromkeys([*containing, *(by_text[text] for text in close)])
    return tuple(found)[:3]


def value_of(name: str, value: float, source: MetricSource) -> Metric:
    """A Metric of the table with the table's unit.

    Raises:
        InputError: the name is not in the table.
    """
    row = metric_def(name)
    return Metric(name=row.name, value=value, unit=row.unit, source=source)
