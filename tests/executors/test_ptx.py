"""Inline PTX on the processor: every instruction against PTX's own words, ptxas takes each."""

from __future__ import annotations

import math
import struct
import subprocess
from pathlib import Path

import pytest

from cudaops.domain.execution import ProgramRan
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program
from cudaops.program.ptx_instructions import instructions
from tests.executors.ptx_reference import ERROR_ABSOLUTE, ERROR_ULP, expected
from tests.executors.ptx_samples import SAMPLES, inputs_of, opcodes, program

pytestmark = pytest.mark.deep  # a minute of g++; the honest kernel of tests/exploits is quicker


@pytest.fixture(scope="module")
def printed(
    cpu_executor: CpuExecutor, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[int]]:
    path: Path = tmp_path_factory.mktemp("ptx") / "samples.cu"
    path.write_text(program())
    ran = cpu_executor.run_program(load_program(path), (), 300.0)
    assert isinstance(ran, ProgramRan), ran
    lines = (line.split() for line in ran.stdout.splitlines())
    return {name: [int(word, 16) for word in words] for name, *words in lines}


@pytest.mark.parametrize("opcode", opcodes())
def test_it_computes_what_ptx_says(printed: dict[str, list[int]], opcode: str) -> None:
    inputs = inputs_of(opcode)
    for sample, found in enumerate(printed[opcode]):
        given = inputs[4 * sample : 4 * sample + 4]
        wanted = expected(opcode, given)
        assert alike(opcode, found, wanted), (sample, [hex(v) for v in given], hex(found), wanted)
    assert len(printed[opcode]) == SAMPLES


@pytest.mark.nvcc
def test_ptxas_takes_every_instruction(tmp_path: Path) -> None:
    (tmp_path / "samples.cu").write_text(program())
    command = ["nvcc", "-arch=sm_80", "-cubin", "-o", "samples.cubin", "samples.cu"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]


def alike(opcode: str, found: int, wanted: int | float) -> bool:
    """The same bits, any NaN for a NaN; of approximate instructions within the stated error."""
    kind = instructions()[opcode].writes
    assert kind is not None
    value = number(kind, found)
    if isinstance(wanted, int):
        both_nan = kind[0] == "f" and math.isnan(value) and math.isnan(number(kind, wanted))
        return both_nan or found == wanted
    if math.isnan(wanted) or math.isinf(wanted) or wanted == 0:
        return math.isnan(value) if math.isnan(wanted) else value == wanted
    name = opcode.split(".")[0]
    if math.isinf(value):  # beyond the largest float
        return abs(wanted) > 3.4e38 and (value > 0) == (wanted > 0)
    room = max(
        ERROR_ULP.get(name, 0.0) * math.ldexp(abs(wanted), -23), ERROR_ABSOLUTE.get(name, 0.0)
    )
    return bool(abs(value - wanted) <= max(room, 2.0**-149))


def number(kind: str, bits: int) -> float:
    if kind == "f32":
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0]) if kind == "f64" else float(bits)
