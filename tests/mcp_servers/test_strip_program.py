"""`strip_program`: a whole program becomes a rewrite, and what cannot is refused in one line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError

from cudaops.domain.judgement import Policy
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.isolation.level import enforce
from cudaops.mcp_servers import sandbox
from cudaops.mcp_servers.sessions import Session
from cudaops.program.hygiene import check_source
from tests.gates.gate_bench import EXPLOITS, MM, bench_of

AUTHOR = MM.read_text()
TILED = (EXPLOITS / "honest" / "shared_tiles.cu").read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> FastMCP:
    folder = tmp_path_factory.mktemp("strip")
    executor = CpuExecutor("A10", kernels)
    bench = bench_of(executor, MM, folder, Policy(min_speedup=0.001, seed=3))
    bench.timeout_s = 15.0
    return sandbox.build_server(Session(bench=bench))


def call(server: FastMCP, tool: str, **arguments: Any) -> Any:
    async def talk() -> Any:
        async with Client(server) as client:
            return (await client.call_tool(tool, arguments)).structured_content

    return asyncio.run(talk())


def tiled_program() -> str:
    """The author's program with another kernel in the place of his, and directives left over."""
    kernel = "// @launch mm grid=(1) block=(1) args=(A, B, C, N)\n" + "\n".join(
        line for line in TILED.split("\n") if "@" not in line
    ).replace("tiles(", "mm(")
    start = AUTHOR.index("__global__")
    end = AUTHOR.index("\n}\n", start) + 3
    return AUTHOR[:start] + kernel + AUTHOR[end:]


def test_a_whole_program_becomes_a_rewrite_that_compiles(server: FastMCP) -> None:
    stripped = call(server, "strip_program", text=tiled_program())
    source = stripped["source"]
    assert source.startswith("// @launch mm grid=")
    assert source.count("@launch") == 1
    assert "main" not in source
    assert "cudaMalloc" not in source
    assert check_source(source) == ()
    assert stripped["notices"] == []
    assert call(server, "compile_rewrite", source=source)["ok"]


def test_what_is_launched_beside_it_is_said(server: FastMCP) -> None:
    program = tiled_program()
    other = "__global__ void look(const float* A) { volatile float first = A[0]; (void)first; }\n"
    program = program.replace("int main", other + "int main", 1)
    at = program.index("mm<<<")
    with_both = program[:at] + "look<<<1, 32>>>(dA);\n    " + program[at:]
    stripped = call(server, "strip_program", text=with_both)
    assert any("look" in notice for notice in stripped["notices"])
    assert "look" not in stripped["source"]


def test_what_is_launched_before_it_for_its_result_belongs_to_it(server: FastMCP) -> None:
    program = tiled_program()
    other = "__global__ void clear(float* C, int N) { C[threadIdx.x % (N * N)] = 0.0f; }\n"
    program = program.replace("int main", other + "int main", 1)
    at = program.index("mm<<<")
    with_both = program[:at] + "clear<<<1, 32>>>(dC, N);\n    " + program[at:]
    stripped = call(server, "strip_program", text=with_both)
    assert stripped["notices"] == []
    assert stripped["source"].index("@launch clear") < stripped["source"].index("@launch mm")


def test_a_renamed_kernel_of_another_grid_with_types_of_the_host(
    tmp_path: Path, kernels: Path
) -> None:
    """A rewrite as people write them: the old kernel is still there, nobody launches it."""
    folder = Path(__file__).parents[1] / "data" / "verify"
    policy = Policy(min_speedup=0.001, seed=3)
    bench = bench_of(CpuExecutor("A10", kernels), folder / "shade.cu", tmp_path, policy)
    bench.timeout_s = 15.0
    of_shade = sandbox.build_server(Session(bench=bench))
    candidate = (folder / "shade_shared.cu").read_text()
    stripped = call(of_shade, "strip_program", text=candidate)
    grid = "(gridDim.x + 1) / 2,gridDim.y,gridDim.z"
    assert stripped["source"].startswith(
        f"// @launch shade_shared grid=({grid}) block=(256,1,1) smem=0 args=("
    )
    assert call(of_shade, "compile_rewrite", source=stripped["source"])["ok"]


def changed(old: str, new: str) -> str:
    program = tiled_program()
    assert old in program
    return program.replace(old, new, 1)


REFUSED = {
    "does not compile": (changed("float sum", "flaot sum"), r"answer\.cu:\d+"),
    "never ends": (changed("const int N = 64;", "const int N = 64; for (;;) {}"), "15 s"),
    "launches nothing": (
        changed("const int N = 64;", "const int N = 64; if (N) return 0;"),
        "launched no kernel",
    ),
    "crashes": (
        changed("const int N = 64;", "const int N = 64; *(volatile int*)1 = 0;"),
        "segmentation fault",
    ),
    "a buffer of its own": (
        changed("float* C, int N) {", "float* C, int N, const float* D) {\n    (void)D;")
        .replace("dC, N);", "dC, N, dD);", 1)
        .replace("cudaMalloc(&dA", "float* dD; cudaMalloc(&dD, 64); cudaMalloc(&dA", 1),
        "parameter `D` of `mm` reads 64 bytes",
    ),
    "other sizes": (
        changed("const int N = 64;", "const int N = 32;").replace("dim3(4, 4)", "dim3(2, 2)"),
        "N == 32 does not hold",
    ),
    "no program": ("__global__ void mm(float* a) {}\n", "no kernel is launched"),
    "not CUDA": ("int main() { return 0; }\n", "no kernel in it"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_taken_over_is_refused_in_one_line(server: FastMCP, case: str) -> None:
    program, says = REFUSED[case]
    with pytest.raises(ToolError, match=says) as refused:
        call(server, "strip_program", text=program)
    assert "\n" not in str(refused.value)


def test_what_it_printed_is_withheld(server: FastMCP) -> None:
    said = 'const int N = 64; fprintf(stderr, "what a file held\\n"); if (N) return 3;'
    with pytest.raises(ToolError) as refused:
        call(server, "strip_program", text=changed("const int N = 64;", said))
    assert str(refused.value) == "the program exits with code 3"


def test_a_text_reads_no_file_of_this_machine(server: FastMCP, tmp_path: Path) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text('const char* answer = "hunter2";\n')
    program = f'#include "{secret}"\n' + tiled_program()
    with pytest.raises(ToolError) as refused:
        call(server, "strip_program", text=program)
    assert "hunter2" not in str(refused.value)


def test_a_strangers_host_code_sees_no_file_of_the_users(
    server: FastMCP, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hand them on as the geometry of a launch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.txt").write_text("AB")
    reads = (
        'int main() { if (FILE* f = fopen("secret.txt", "r")) { return 17; } '
        f'if (FILE* f = fopen("{tmp_path}/secret.txt", "r")) {{ return 18; }} '
    )
    program = tiled_program().replace("int main() {", reads, 1)
    assert reads in program
    assert call(server, "strip_program", text="#include <cstdio>\n" + program)["source"]


def test_a_strangers_host_code_does_not_run_where_nothing_confines_it(
    tmp_path: Path, kernels: Path
) -> None:
    enforce("S1")
    try:
        executor = CpuExecutor("A10", kernels)
        bench = bench_of(executor, MM, tmp_path, Policy(min_speedup=0.001, seed=3))
        weak = sandbox.build_server(Session(bench=bench))
        with pytest.raises(ToolError, match="S2 or S3"):
            call(weak, "strip_program", text=tiled_program())
    finally:
        enforce("auto")


@pytest.mark.parametrize(
    "line", ['#include "/etc/passwd"', '__device__ int x = 0; asm(".incbin \\"/etc/passwd\\"");']
)
def test_compiling_reads_no_file_for_a_model(server: FastMCP, line: str) -> None:
    told = call(server, "compile_rewrite", source=f"{TILED}\n{line}\n")
    assert not told["ok"]
    assert "root:" not in told["message"] + told["log"]


def test_a_compilers_complaint_names_no_folder_of_this_machine(server: FastMCP) -> None:
    wrong = TILED.replace("float sum", "atomicAdd((char*)A, 1.0f); float sum", 1)
    told = call(server, "compile_rewrite", source=wrong)
    assert not told["ok"]
    assert "atomic" in told["message"] + told["log"]
    for word in (told["message"] + " " + told["log"]).split():
        assert not word.startswith(("/", "'/", "`/")), word
