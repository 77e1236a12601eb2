"""The profiler and sandbox servers as another agent host uses them: open, profile, tune, judge."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError

from cudaops.cuda.derived import DERIVED
from cudaops.domain.judgement import Policy
from cudaops.domain.options import KernelOptions
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.mcp_servers import profiler, sandbox
from cudaops.mcp_servers.sessions import Session
from cudaops.program.parse import load_program
from cudaops.sandbox.workbench import Workbench, open_workbench

EXPLOITS = Path(__file__).parents[1] / "exploits"
TILES = (EXPLOITS / "honest" / "shared_tiles.cu").read_text()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Session:
    folder = tmp_path_factory.mktemp("session")
    executor = CpuExecutor("A10", kernels)

    def open_program(path: Path, asked: KernelOptions) -> Workbench:
        return open_workbench(
            load_program(path),
            asked.kernel,
            asked.program_runs,
            executor,
            Policy(min_speedup=0.001),
            folder / path.stem,
            sm_arch="sm_86",
            timeout_s=20.0,
        )

    return Session(open_program)


def call(server: FastMCP, tool: str, **arguments: Any) -> Any:
    async def talk() -> Any:
        async with Client(server) as client:
            return (await client.call_tool(tool, arguments)).structured_content

    return asyncio.run(talk())


def test_nothing_works_before_a_program_is_open_and_the_message_says_so() -> None:
    for server in (sandbox.build_server(Session()), profiler.build_server(Session())):
        tool = "describe_program" if server.name == "cudaops-sandbox" else "profile_kernel"
        with pytest.raises(ToolError, match="open_program"):
            call(server, tool)


def test_a_host_drives_the_loop_itself(session: Session) -> None:
    judge, profile = sandbox.build_server(session), profiler.build_server(session)
    opened = call(judge, "open_program", path=str(EXPLOITS / "mm.cu"))
    assert opened["kernel"] == "mm"
    assert "__global__" in opened["source"]
    assert "grid (4,4,1)" in opened["launches"][0]
    assert opened["workloads"] == []
    assert opened["kernels"] == ["mm: launched 1x, 100% of the time"]
    whole = call(judge, "describe_program", details=True)
    assert whole["workloads"][0]["grid"] == {"x": 4, "y": 4, "z": 1}
    assert call(judge, "describe_program") == opened

    diagnosis = call(profile, "profile_kernel", everything=True)
    assert diagnosis["verdict"]["source"] == "modelled"
    assert len(diagnosis["profile"]["metrics"]) >= 40
    short = call(profile, "profile_kernel")
    assert len(json.dumps(short)) < 6000
    verdict = diagnosis["verdict"]
    assert {**short["verdict"], "findings": []} == {**verdict, "findings": []}
    said = [e["metric"] for e in verdict["evidence"]]
    rests_on = {n for name in said for n in (DERIVED[name].inputs if name in DERIVED else (name,))}
    assert rests_on
    assert rests_on <= short["profile"]["metrics"].keys()
    assert [f["rule"] for f in short["verdict"]["findings"]] == [
        f["rule"] for f in verdict["findings"][1:4]
    ]

    assert call(judge, "compile_rewrite", source=TILES)["ok"]
    broken = call(judge, "compile_rewrite", source=TILES.replace("float sum", "flaot sum"))
    assert not broken["ok"]
    assert broken["location"]["file"] == "candidate.cu"

    tuned = call(judge, "tune_rewrite", source=tunable(TILES), max_trials=3)
    assert tuned["best"] in ({"UNROLL": 1}, {"UNROLL": 4})
    assert len([t for t in tuned["trials"] if t["time_us"]]) == 2

    judged = call(judge, "judge_rewrite", source=TILES, proposer="mcp:test", title="tiles")
    assert judged["judgement"]["outcome"] == "provisional", judged["judgement"]["reason"]
    assert "mutants rejected on" in judged["oracle"]
    assert call(profile, "profile_rewrite", source=TILES)["profile"]["duration_us"] > 0


HALVES = """#include <cstdio>\r
#define SCALE 0.5f\r
__device__ float halved(float v) { return SCALE * v; }\r
__global__ void fill(float* x, int n) {\r
  int i = blockIdx.x * blockDim.x + threadIdx.x;\r
  if (i < n) x[i] = i - 1.0f;\r
}\r
__global__ void roots(const float* x, float* y, int n) {\r
  int i = blockIdx.x * blockDim.x + threadIdx.x;\r
  if (i < n) for (int k = 0; k < 50; ++k) y[i] = sqrtf(halved(x[i]) + y[i]);\r
}\r
int main() {\r
  const int n = 1 << 12;\r
  float *x, *y;\r
  cudaMalloc(&x, 4 * n);\r
  cudaMalloc(&y, 4 * n);\r
  cudaMemset(y, 0, 4 * n);\r
  fill<<<n / 128, 128>>>(x, n);\r
  roots<<<n / 128, 128>>>(x, y, n);\r
  cudaDeviceSynchronize();\r
  return 0;\r
}\r
"""


def test_opening_tells_what_a_rewrite_is_written_from(session: Session, tmp_path: Path) -> None:
    """What the kernel leans on, which kernels there are, and what the author's leaves behind."""
    program = tmp_path / "halves.cu"
    program.write_bytes(HALVES.encode())
    opened = call(sandbox.build_server(session), "open_program", path=str(program), kernel="roots")
    assert {line.split(":")[0] for line in opened["kernels"]} == {"roots", "fill"}
    assert "#define SCALE 0.5f" in opened["declarations"]
    assert "float halved(float v)" in opened["declarations"]
    assert "fill" not in opened["declarations"]
    assert "\r" not in opened["source"] + opened["declarations"]
    (y,) = (line for line in opened["launches"] if line.startswith("  y:"))
    assert "100 % zeros" in y
    assert "afterwards values" in y
    assert "% not finite" in y


def test_a_decision_is_of_the_program_it_was_made_on(session: Session, tmp_path: Path) -> None:
    """What is judged while another program is opened cannot be accepted for that one."""
    other = tmp_path / "other.cu"
    text = (EXPLOITS / "mm.cu").read_text("utf-8")
    other.write_text(text.replace("sum +=", "sum -="), encoding="utf-8")
    server = sandbox.build_server(session)

    async def talk() -> None:
        began = asyncio.Event()

        async def listen(progress: float, total: float | None, message: str | None) -> None:
            began.set()

        async with Client(server) as client:
            await client.call_tool("open_program", {"path": str(EXPLOITS / "mm.cu")})
            judging = asyncio.create_task(
                client.call_tool("judge_rewrite", {"source": TILES}, progress_handler=listen)
            )
            await began.wait()
            await client.call_tool("open_program", {"path": str(other)})
            judged = (await judging).structured_content
            assert judged is not None
            assert judged["judgement"]["outcome"] == "provisional"
            with pytest.raises(ToolError, match="judged: none yet"):
                await client.call_tool("accept_rewrite", {"rewrite_id": judged["rewrite_id"]})

    asyncio.run(talk())


def tunable(source: str) -> str:
    loop = "        for (int k = 0; k < 16; ++k)"
    assert loop in source
    return "// @tune UNROLL = 1, 4\n" + source.replace(loop, f"#pragma unroll UNROLL\n{loop}")


def test_a_client_can_raise_the_bar_and_not_lower_it(session: Session) -> None:
    server = sandbox.build_server(session)
    call(server, "open_program", path=str(EXPLOITS / "mm.cu"))
    raised = call(server, "judge_rewrite", source=TILES, min_speedup=1000.0)
    assert raised["judgement"]["outcome"] == "rejected"
    lowered = call(server, "judge_rewrite", source=TILES, min_speedup=1e-9)
    speedup = next(g for g in lowered["judgement"]["gates"] if g["name"] == "speedup")
    assert speedup["numbers"]["min_speedup"] == 0.001


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("__global__ void k() {}", "@launch"),
        ("// @launch k grid=(1 block=(1) args=()\n__global__ void k() {}", "1:"),
    ],
)
def test_a_directive_that_is_wrong_is_placed(session: Session, source: str, says: str) -> None:
    server = sandbox.build_server(session)
    call(server, "open_program", path=str(EXPLOITS / "mm.cu"))
    with pytest.raises(ToolError, match=says):
        call(server, "compile_rewrite", source=source)


@pytest.mark.parametrize("tool", ["tune_rewrite", "profile_rewrite"])
def test_a_rewrite_reads_no_file_of_this_machine(session: Session, tool: str) -> None:
    server = (profiler if tool == "profile_rewrite" else sandbox).build_server(session)
    call(sandbox.build_server(session), "open_program", path=str(EXPLOITS / "mm.cu"))
    source = TILES + '\nasm(".incbin \\"/etc/hostname\\"");\n'
    with pytest.raises(ToolError, match="asm"):
        call(server, tool, source=source)


def test_a_value_for_no_tune_name_is_refused(session: Session) -> None:
    server = sandbox.build_server(session)
    call(server, "open_program", path=str(EXPLOITS / "mm.cu"))
    with pytest.raises(ToolError, match="'TILE' is not a @tune name"):
        call(server, "compile_rewrite", source=TILES, tuned={"TILE": 8})


def test_a_program_that_cannot_be_opened_says_what_to_change(session: Session) -> None:
    server = sandbox.build_server(session)
    with pytest.raises(ToolError, match="no such file"):
        call(server, "open_program", path="nowhere.cu")


def test_metrics_are_explained_and_unknown_ones_have_neighbours(session: Session) -> None:
    server = profiler.build_server(session)
    known = call(server, "explain_metric", name="l1tex__t_sector_hit_rate.pct")
    assert "%" in str(known)
    with pytest.raises(ToolError, match=r"l1tex__t_sector_hit_rate\.pct"):
        call(server, "explain_metric", name="l1tex__t_sector_hit_rat.pct")
