"""Plug-ins: an example package, installed by pip, and packages that are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "tests" / "data" / "plugin"
ADDITION = ROOT / "tests" / "data" / "programs" / "vector_add.cu"
ATOMIC = """
// @launch added grid=(ceil_div(n, 256)) block=(256) args=(x, y, z, n)
__global__ void added(const float* x, const float* y, float* z, size_t n) {
    size_t i = blockIdx.x * (size_t)256 + threadIdx.x;
    if (i < n) { z[i] = x[i]; atomicAdd(&z[i], y[i]); }
}
"""
PLAIN = ATOMIC.replace("z[i] = x[i]; atomicAdd(&z[i], y[i]);", "z[i] = x[i] + y[i];")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed by pip where PYTHONPATH finds it."""
    target = tmp_path_factory.mktemp("plugins")
    wheel = wheel_of(EXAMPLE, tmp_path_factory.mktemp("wheel"))
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    done = subprocess.run(
        [*words, "--target", str(target), str(wheel)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


def wheel_of(folder: Path, target: Path) -> Path:
    """A package of modules as a wheel: a build backend would have to be fetched first."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    facts = f"{stem}.dist-info"
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in found.items())
        for group, found in project["entry-points"].items()
    )
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    files = {
        **{path.name: path.read_text("utf-8") for path in folder.glob("*.py")},
        f"{facts}/METADATA": about,
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{facts}/entry_points.txt": points,
    }
    files[f"{facts}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{facts}/RECORD"))
    path = target / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def package(folder: Path, group: str, code: str, name: str = "bad") -> Path:
    """An installed package of one module with one entry point, as an installer leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}_module.py").write_text(code, "utf-8")
    facts = folder / f"{name}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
    (facts / "entry_points.txt").write_text(f"[{group}]\nmine = {name}_module:mine\n", "utf-8")
    return folder


def cudaops(plugins: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(plugins, "-m", "cudaops", *words)


def python(plugins: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(plugins), str(ROOT)))
    return subprocess.run(
        [sys.executable, *words], env={**os.environ, "PYTHONPATH": path}, cwd=plugins,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def judged(plugins: Path, tmp_path: Path, rewrite: str) -> subprocess.CompletedProcess[str]:
    candidate = tmp_path / "candidate.cu"
    candidate.write_text(rewrite, "utf-8")
    words = ("--executor", "cpu", "--out", str(tmp_path / "out"), "--min-speedup", "1")
    return cudaops(plugins, "verify", str(ADDITION), str(candidate), *words)


def test_a_run_with_device_rule_gate_and_recipe_of_a_package(
    installed: Path, tmp_path: Path
) -> None:
    done = cudaops(
        installed, "run", str(ADDITION), "--device", "EX40", "--executor", "cpu", "--no-memory",
        "--max-iterations", "1", "--min-speedup", "1", "--out", str(tmp_path / "run"), "--json",
        "--optimizer", "recipes",
    )  # fmt: skip
    record = json.loads(done.stdout)
    assert record["device"] == "EX40"
    assert record["profile"]["subtype"] == "occupancy_block_size"
    assert "the example's rule saw blocks of" in record["profile"]["verdict"]
    (attempt,) = record["attempts"]
    assert attempt["proposer"] == "recipe:example_pairs"
    (gate,) = [g for g in attempt["judgement"]["gates"] if g["name"] == "plugin"]
    assert gate["passed"]
    assert "cudaops-example 1.2, entry point cudaops.gates:no_atomics" in gate["summary"]
    # The record holds the device's row: it is read without the package too.
    shown = cudaops(tmp_path, "report", str(tmp_path / "run"))
    assert shown.returncode == 0, shown.stderr


def test_a_gate_of_a_package_refuses(installed: Path, tmp_path: Path) -> None:
    done = judged(installed, tmp_path, ATOMIC)
    assert done.returncode == 1
    told = " ".join(done.stdout.split())
    assert (
        "plug-in cudaops-example 1.2, entry point cudaops.gates:no_atomics, refuses it: it uses"
        " atomics" in told
    )


def test_a_hint_of_a_package_is_asked(installed: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from cudaops.program.parse import load_program;"
        "from cudaops.prompts.hints import hints_for; p = load_program(Path(sys.argv[1]));"
        "print(hints_for(p, p.kernels[0]))"
    )
    done = python(installed, "-c", code, str(ADDITION))
    assert "Additions of vectors are bound by DRAM." in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("group", "code", "says"),
    [
        ("cudaops.devices", "mine = 7", "is int, not a cudaops.cuda.devices.Device"),
        ("cudaops.gates", "mine = 7", "is int, not a function of a program and a rewrite"),
        ("cudaops.hints", "mine = None", "is NoneType, not a function of a program and a kernel"),
        ("cudaops.recipes", "mine = 7", "it has no name, title, family"),
        ("cudaops.rules", "raise OSError('no licence')", "cannot be loaded: OSError: no licence"),
        ("cudaops.rules", "other = 1", "cannot be loaded: AttributeError"),
        (
            "cudaops.rules",
            "from cudaops.cuda.rule import Rule\nmine = Rule('m', 'moon', 1, 'info', (), 'x')",
            "there is no verdict subtype 'moon'",
        ),
    ],
)
def test_what_cannot_be_used_stops_before_anything_is_spent(
    tmp_path: Path, group: str, code: str, says: str
) -> None:
    done = judged(package(tmp_path / "site", group, code), tmp_path, PLAIN)
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert f"plug-in bad 1.0, entry point {group}:mine," in line
    assert says in line
    assert line.endswith("mend or uninstall that package")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def mine(program, rewrite): return 1 / 0", "raised ZeroDivisionError: division by zero"),
        ("def mine(program, rewrite): return True", "answered bool, neither text nor None"),
    ],
)
def test_a_gate_that_fails_refuses(tmp_path: Path, code: str, says: str) -> None:
    done = judged(package(tmp_path / "site", "cudaops.gates", code), tmp_path, PLAIN)
    assert done.returncode == 1
    assert f"plug-in bad 1.0, entry point cudaops.gates:mine, {says}" in " ".join(
        done.stdout.split()
    )


def test_a_gate_cannot_let_through_what_another_refuses(tmp_path: Path) -> None:
    site = package(tmp_path / "site", "cudaops.gates", "def mine(program, rewrite): return None")
    done = judged(site, tmp_path, PLAIN.replace("x[i] + y[i]", "x[i] - y[i]"))
    assert done.returncode == 1
    assert "correctness_captured" in done.stdout


def test_a_recipe_that_raises_stops_the_run(tmp_path: Path) -> None:
    code = (
        "class Mine:\n"
        "    name, title, family, relieves = 'mine', 'mine', 'other', frozenset()\n"
        "    def propose(self, *known): raise KeyError('shape')\n"
        "    def seeds(self, rewrite): return ({},)\n"
        "    def refusal(self, rewrite): return None\n"
        "mine = Mine()\n"
    )
    site = package(tmp_path / "site", "cudaops.recipes", code)
    done = cudaops(
        site, "run", str(ADDITION), "--executor", "cpu", "--no-memory", "--optimizer", "recipes",
        "--max-iterations", "1", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    line = done.stderr.splitlines()[-1]
    assert "plug-in bad 1.0, entry point cudaops.recipes:mine, raised KeyError: 'shape'" in line
