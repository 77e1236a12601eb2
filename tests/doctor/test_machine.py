"""The real seam: real programs, real files, and a libcuda built here to be asked."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cudaops.doctor.machine import ThisMachine, libcuda_command
from cudaops.errors import PrerequisiteError
from tests.doctor.machines import H200_ROW

LIBCUDA = """
#include <cstddef>
#include <cstdlib>
#include <cstring>
extern "C" {
int cuInit(unsigned) { const char* e = std::getenv("CUDA_TEST_INIT"); return e ? std::atoi(e) : 0; }
int cuDriverGetVersion(int* v) { *v = 13000; return 0; }
int cuDeviceGetCount(int* n) { *n = 2; return 0; }
int cuDeviceGet(int* d, int i) { *d = i + 7; return 0; }
int cuDeviceGetName(char* s, int n, int d) { std::strncpy(s, d == 7 ? "one" : "two", n); return 0; }
int cuDeviceGetUuid_v2(unsigned char* u, int) {
  for (int i = 0; i < 16; ++i) u[i] = i * 17;
  return 0; }
int cuDeviceTotalMem_v2(std::size_t* b, int) { *b = 150754820096ull; return 0; }
int cuDeviceGetAttribute(int* v, int a, int) { *v = a == 75 ? 9 : a == 76 ? 0 : a == 16 ? 132 : -1;
  return 0; }
int cuGetErrorName(int e, const char** s) { *s = "CUDA_ERROR_NO_DEVICE"; return e == 100 ? 0 : 1; }
}
"""
"""The calls of the CUDA Driver API that the doctor makes, with its signatures."""


@pytest.fixture
def libcuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "libcuda.cpp"
    source.write_text(LIBCUDA, encoding="utf-8")
    built = tmp_path / "libcuda.so.1"
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", built], check=True, timeout=60)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))


def asked() -> dict[str, object]:
    done = ThisMachine().run(libcuda_command(), timeout_s=20)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.usefixtures("libcuda")
def test_libcuda_is_asked_in_its_own_types() -> None:
    answer = asked()
    assert (answer["error"], answer["version"]) == ("", 13000)
    one = {
        "name": "one",
        "uuid": "GPU-00112233-4455-6677-8899-aabbccddeeff",
        "capability": [9, 0],
        "sm_count": 132,
        "memory_bytes": 150754820096,
    }
    assert answer["devices"] == [one, {**one, "name": "two"}]


@pytest.mark.usefixtures("libcuda")
@pytest.mark.parametrize(("code", "name"), [(100, "CUDA_ERROR_NO_DEVICE"), (4711, "error 4711")])
def test_what_cuinit_returns(code: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_TEST_INIT", str(code))
    answer = asked()
    assert (answer["error"], answer["devices"]) == (name, [])


def test_a_program_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "nvidia-smi"
    script.write_text(
        f"#!/bin/sh\nprintf '%s' '{H200_ROW}'\necho \"$CUDA_VISIBLE_DEVICES.$SECRET\" >&2\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("SECRET", "nvapi-hunter2")
    machine = ThisMachine()
    assert machine.find("nvidia-smi") == script
    done = machine.run(["nvidia-smi"], timeout_s=20)
    assert done.stdout == H200_ROW
    assert done.stderr == "3.\n"


def test_what_is_not_there() -> None:
    machine = ThisMachine()
    assert machine.find("no-such-program-of-nvidia") is None
    with pytest.raises(PrerequisiteError):
        machine.run(["/no/such/program"], timeout_s=5)
    assert machine.variable("CUDAOPS_NO_SUCH_VARIABLE") is None
    assert not machine.package("no_such_package")
    assert machine.package("json")


def test_files(tmp_path: Path) -> None:
    for name in ("b.conf", "a.conf", "c.txt"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    (tmp_path / "d.conf").mkdir()
    found = ThisMachine().read(f"{tmp_path}/*.conf")
    assert found == ((f"{tmp_path}/a.conf", "a.conf"), (f"{tmp_path}/b.conf", "b.conf"))
    assert ThisMachine().read("/no/such/*") == ()
    ((_, status),) = ThisMachine().read("/proc/self/status")
    assert "CapBnd" in status
