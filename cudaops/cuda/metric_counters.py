"""Rows of the metric table that only the raw page holds: counters behind the details page."""

from __future__ import annotations

from cudaops.cuda.metric_rows import MetricDef, section_rows

COUNTER_ROWS: list[MetricDef] = []

_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"
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
