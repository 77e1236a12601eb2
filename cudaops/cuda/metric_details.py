"""Rows of the metric table that ncu's details page prints under `--set full`.

Labels and raw names were matched by value on the two captures of tests/data/ncu and by the section
definitions inside the report file; `tests/cuda/test_metrics.py` repeats the match by value.
"""

from __future__ import annotations

from cudaops.cuda.metric_rows import MetricDef, section_rows

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
