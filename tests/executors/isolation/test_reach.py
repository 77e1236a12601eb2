"""What a child reaches past Landlock: sockets, attributes of files, what is on Python's path."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cudaops
from cudaops.domain.judgement import IsolationLevel
from cudaops.executors.isolation import credentials, places
from cudaops.executors.isolation.phases import Confinement, Phase
from cudaops.executors.process import python_path, run_bounded
from tests.executors.isolation.hostile import PHASES, outcomes, ran


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    """Somebody's socket as a database has it: 0600 in a folder that is 0700."""
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as found:
        found.bind(str(folder / "s"))
        (folder / "s").chmod(0o600)
        found.listen()
        found.setblocking(False)
        yield found


@pytest.mark.parametrize("phase", PHASES)
def test_nobodys_socket_is_reached(
    programs: dict[str, Path],
    level: IsolationLevel,
    phase: Phase,
    listening: socket.socket,
    tmp_path: Path,
) -> None:
    """Not by path, not by abstract name, not with a socket made in a pair. On a GPU a socket may
    take a name, as CUDA's driver has it, for others to call."""
    done = ran(programs["reach"], phase, level, tmp_path / "w", listening.getsockname())
    lines = done.stdout.splitlines()
    assert len(lines) == 28
    reached = [line.split()[0] for line in lines if "DONE" in line]
    assert set(reached) <= ({"bind", "abstract"} if phase == "gpu" else set())
    with pytest.raises(BlockingIOError):
        listening.accept()


def test_with_mps_there_are_sockets_but_modes_decide(
    programs: dict[str, Path],
    level: IsolationLevel,
    listening: socket.socket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipes = tmp_path / "mps"
    pipes.mkdir(mode=0o755)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(pipes))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.bind(str(pipes / "control"))
        assert places.mps_folder() is None, "nobody listens yet"
        control.listen()
        assert places.mps_folder() == pipes
        (pipes / "control").chmod(0o666)
        found = ran(programs["reach"], "gpu", level, tmp_path / "w", str(pipes / "control"))
        assert "connect DONE" in found.stdout
        if credentials.can_narrow() and places.open_nodes():
            path = listening.getsockname()
            found = ran(programs["reach"], "gpu", level, tmp_path / "w", path)
            assert "connect DONE" not in found.stdout
    assert places.mps_folder() is None, "nobody listens any more"


@pytest.mark.parametrize("phase", ["kernel", "program", "gpu"])
def test_what_landlock_leaves_to_owners_is_refused(
    programs: dict[str, Path], level: IsolationLevel, phase: Phase, tmp_path: Path
) -> None:
    """On a file that it owns, which stands for those of an account that it shares with others."""
    folder = tmp_path / "w"
    found = outcomes(ran(programs["attributes"], phase, level, folder, "mine"))
    assert set(found.values()) == {"refused"}, found
    after = (folder / "mine").stat()
    assert stat.S_IMODE(after.st_mode) == 0o600
    assert after.st_mtime > 0


@pytest.mark.parametrize("phase", ["kernel", "program", "gpu"])
def test_what_ordinary_programs_do_works(
    programs: dict[str, Path], level: IsolationLevel, phase: Phase, tmp_path: Path
) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "given").write_text("ours", encoding="utf-8")
    (folder / "given").chmod(0o600)
    words = ["pairs"] if phase == "gpu" else []
    done = ran(programs["ordinary"], phase, level, folder, *words)
    assert set(outcomes(done).values()) == {"DONE"}, done
    assert (folder / "g" / "d" / "e").read_text("utf-8") == "content"
    if phase == "gpu":
        assert {p.stat().st_uid for p in (folder, *folder.rglob("*"))} == {os.geteuid()}


def test_a_compiler_does_not_read_what_happens_to_be_on_the_path(
    level: IsolationLevel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout from which something is imported, our own among them; what an installer put into
    such a folder is read."""
    checkout = tmp_path / "checkout"
    (checkout / "package").mkdir(parents=True)
    (checkout / "package-1.dist-info").mkdir()
    (checkout / "package-1.dist-info" / "METADATA").write_text(
        "Name: package\nVersion: 1\n", "utf-8"
    )
    (checkout / "package-1.dist-info" / "RECORD").write_text("package/a.h,,\n", "utf-8")
    (checkout / "package" / "a.h").write_text("#define A 1\n", encoding="utf-8")
    (checkout / ".env").write_text("NVIDIA_API_KEY=nvapi-1", encoding="utf-8")
    monkeypatch.syspath_prepend(str(checkout))
    folder = tmp_path / "w"
    folder.mkdir()
    parent = Path(cudaops.__file__).parents[1]
    asked = [checkout / ".env", parent / "pyproject.toml", parent / ".git" / "config"]
    words = [str(p) for p in asked if p.is_file()]
    confine = Confinement("compile", writes=(folder,), at_most=level)
    for path in words:
        (folder / "a.cpp").write_text(f'#include "{path}"\nint main() {{}}\n', "utf-8")
        (folder / "b.cpp").write_text(f'asm(".incbin \\"{path}\\"");int main() {{}}\n', "utf-8")
        for name in ("a.cpp", "b.cpp"):
            command = ["g++", name, "-o", "made"]
            done = run_bounded(command, cwd=folder, timeout_s=300, confine=confine)
            assert done.exit_code != 0
            assert "NVIDIA_API_KEY" not in done.stderr
            assert not (folder / "made").exists()
    (folder / "a.cpp").write_text(f'#include "{checkout}/package/a.h"\nint a = A;\n', "utf-8")
    done = run_bounded(["g++", "-c", "a.cpp"], cwd=folder, timeout_s=300, confine=confine)
    assert done.exit_code == 0, done


def test_our_own_python_starts_confined(level: IsolationLevel, tmp_path: Path) -> None:
    """As NVRTC's worker and the probe of a GPU do, found by PYTHONPATH."""
    env = {"PYTHONPATH": python_path()}
    code = "import cudaops.domain.run, sys; open('made', 'w').write('x')"
    phases: tuple[Phase, ...] = ("compile", "gpu")
    for phase in phases:
        folder = tmp_path / phase
        folder.mkdir()
        confine = Confinement(phase, writes=(folder,), at_most=level)
        command = [sys.executable, "-P", "-c", code]
        done = run_bounded(command, cwd=folder, timeout_s=60, env=env, confine=confine)
        assert done.exit_code == 0, done
        assert (folder / "made").is_file()


def test_a_child_on_a_gpu_reads_nothing_that_is_for_root(
    programs: dict[str, Path], level: IsolationLevel, tmp_path: Path
) -> None:
    files = [
        p for p in (Path("/etc/shadow"), Path("/etc/gshadow"), Path("/etc/sudoers")) if p.is_file()
    ]
    words = (str(os.getpid()), "0", *map(str, files))
    found = ran(programs["look"], "gpu", level, tmp_path / "w", *words)
    assert "DONE" not in found.stdout
