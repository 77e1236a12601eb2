"""What hostile children try in each phase, at each level this machine has: contained."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.domain.judgement import IsolationLevel
from cudaops.executors.isolation import credentials
from cudaops.executors.isolation.level import level_of, probe
from cudaops.executors.isolation.phases import Confinement, Phase, PhaseLimits, limits_of
from cudaops.executors.process import python_path, run_bounded
from tests.executors.isolation.hostile import LEVELS, PHASES, outcomes, ran

SMALL = PhaseLimits(
    file_bytes=8 << 20, disk_bytes=64 << 20, disk_entries=500, tasks=40, share_of_memory=0.02
)


@pytest.fixture(autouse=True)
def _unaffected(programs: dict[str, Path], tmp_path: Path) -> Iterator[None]:
    """After whatever happened, a normal child works as before."""
    yield
    folder = tmp_path / "next"
    folder.mkdir()
    done = run_bounded(
        [str(programs["threads"])], cwd=folder, timeout_s=60, confine=Confinement("kernel")
    )
    assert (done.stdout, done.exit_code) == ("thread DONE\n", 0)


@pytest.mark.parametrize("phase", PHASES)
def test_it_sees_neither_its_parent_nor_others_files(
    programs: dict[str, Path], level: IsolationLevel, phase: Phase, tmp_path: Path
) -> None:
    secret = ctypes.create_string_buffer(b"secret!!")
    others = [tmp_path / "author" / ".env", tmp_path / "runs" / "earlier" / "run.json"]
    for path in others:
        path.parent.mkdir(parents=True)
        path.write_text("NVIDIA_API_KEY=nvapi-1", encoding="utf-8")
    victim = (str(os.getpid()), str(ctypes.addressof(secret)))
    done = ran(programs["look"], phase, level, tmp_path / "w", *victim, *map(str, others))
    assert set(outcomes(done).values()) == {"refused"}, done.stdout
    assert len(done.stdout.splitlines()) == 4 + len(others)


@pytest.mark.parametrize("phase", PHASES)
def test_no_network(
    programs: dict[str, Path], level: IsolationLevel, phase: Phase, tmp_path: Path
) -> None:
    found = outcomes(ran(programs["sockets"], phase, level, tmp_path / "w"))
    local = {name: found.pop(name) for name in ("unix", "socketpair")}
    assert set(found.values()) == {"refused"}, found
    assert (local["unix"] == "DONE") == (phase == "gpu")
    # cargo makes one for each compiler that it starts.
    assert (local["socketpair"] == "DONE") == (phase in ("gpu", "compile"))


@pytest.mark.parametrize("phase", PHASES)
def test_it_cannot_end_or_cripple_its_parent(
    programs: dict[str, Path], level: IsolationLevel, phase: Phase, tmp_path: Path
) -> None:
    done = ran(programs["kill"], phase, level, tmp_path / "w", str(os.getpid()))
    assert set(outcomes(done).values()) == {"refused"}, done.stdout


@pytest.mark.parametrize("phase", PHASES)
def test_no_way_into_another_namespace_or_account(
    programs: dict[str, Path], level: IsolationLevel, phase: Phase, tmp_path: Path
) -> None:
    found = outcomes(ran(programs["escape"], phase, level, tmp_path / "w"))
    if os.geteuid() == 0 and not credentials.can_switch():
        found.pop("setuid")  # it is root already, without a capability
    assert set(found.values()) == {"refused"}, found


@pytest.mark.parametrize("phase", PHASES)
def test_it_writes_into_its_folder_alone(
    programs: dict[str, Path], level: IsolationLevel, phase: Phase, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("as it was", encoding="utf-8")
    outside = tmp_path / "outside"
    done = ran(programs["write"], phase, level, tmp_path / "w", str(outside), str(theirs))
    found = outcomes(done)
    assert found.pop("inside") == "DONE"
    assert set(found.values()) == {"refused"}, found
    assert theirs.read_text("utf-8") == "as it was"
    assert not outside.exists()
    assert [p.name for p in (tmp_path / "w").iterdir()] == ["mine"]


def test_a_kernel_starts_threads_and_no_process(
    programs: dict[str, Path], level: IsolationLevel, tmp_path: Path
) -> None:
    assert outcomes(ran(programs["fork"], "kernel", level, tmp_path / "w"))["fork"] == "refused"
    found = outcomes(ran(programs["threads"], "kernel", level, tmp_path / "w"))
    assert found["thread"] == "DONE"


def test_a_compiler_compiles(level: IsolationLevel, tmp_path: Path) -> None:
    """With a temporary file, which g++ looks for a folder for by access(2)."""
    (tmp_path / "a.cpp").write_text("#include <vector>\nint main() { return 0; }\n", "utf-8")
    confine = Confinement("compile", writes=(tmp_path,), at_most=level)
    for command in (["g++", "a.cpp", "-o", "a"], ["sh", "-c", 'test -w . && test -w "$TMPDIR"']):
        done = run_bounded(command, cwd=tmp_path, timeout_s=300, confine=confine)
        assert done.exit_code == 0, done
    assert (tmp_path / "a").is_file()


@pytest.mark.parametrize("phase", ["program", "gpu"])
def test_forks_without_end(
    programs: dict[str, Path], level: IsolationLevel, phase: Phase, tmp_path: Path
) -> None:
    before = credentials.tasks_now()
    done = ran(programs["bomb"], phase, level, tmp_path / "w", timeout_s=2.0, limits=SMALL)
    assert done.timed_out
    assert not _running(programs["bomb"].name)
    assert before > 0


@pytest.mark.parametrize("level", ["S1", *LEVELS])
def test_no_daemon_is_left(
    programs: dict[str, Path], level: IsolationLevel, tmp_path: Path
) -> None:
    if level_of("program", level) != level:
        pytest.skip(f"this machine reaches {probe().level}")
    done = ran(programs["daemon"], "program", level, tmp_path / "w")
    assert done.stdout == "left one\n"
    assert (tmp_path / "w" / "daemon.pid").is_file()
    assert not _running(programs["daemon"].name)


def _running(name: str) -> bool:
    """Whether a process of this name is there; those that are going get a moment."""
    for _ in range(100):
        names = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                names.append((folder / "comm").read_text("utf-8").strip())
            except OSError:
                continue
        if name not in names:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(("name", "word"), [("files", "files"), ("disk", "GiB")])
def test_a_full_disk_is_a_flood(
    programs: dict[str, Path], level: IsolationLevel, name: str, word: str, tmp_path: Path
) -> None:
    limits = SMALL if name == "files" else SMALL._replace(disk_entries=100_000)
    done = ran(programs[name], "program", level, tmp_path / "w", limits=limits)
    assert done.flooded
    assert word in done.exceeded


def test_one_huge_file_ends_it(
    programs: dict[str, Path], level: IsolationLevel, tmp_path: Path
) -> None:
    done = ran(programs["huge"], "program", level, tmp_path / "w", limits=SMALL)
    assert done.exit_code != 0
    assert (tmp_path / "w" / "huge").stat().st_size <= SMALL.file_bytes


def test_all_memory_is_not_to_be_had(
    programs: dict[str, Path], level: IsolationLevel, tmp_path: Path
) -> None:
    done = ran(programs["memory"], "kernel", level, tmp_path / "w", limits=SMALL)
    assert "GiB of memory" in done.exceeded
    assert not done.flooded
    bounded = limits_of("compile")._replace(address_space_bytes=256 << 20)
    done = ran(programs["memory"], "compile", level, tmp_path / "w", limits=bounded)
    assert (done.stdout, done.exit_code) == ("no more\n", 3)


def test_endless_loop_and_endless_output(
    programs: dict[str, Path], level: IsolationLevel, tmp_path: Path
) -> None:
    assert ran(programs["loop"], "kernel", level, tmp_path / "w", timeout_s=2.0).timed_out
    done = ran(programs["flood"], "kernel", level, tmp_path / "w", max_output_bytes=100_000)
    assert done.flooded


@pytest.mark.parametrize("phase", PHASES)
def test_no_secret_of_ours_reaches_a_child(
    programs: dict[str, Path],
    level: IsolationLevel,
    phase: Phase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NVIDIA_API_KEY", "DATABASE_URL", "HOME", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, "secret-of-ours")
    monkeypatch.setenv("PATH", f"/home/secret-of-ours/bin{os.pathsep}{os.environ['PATH']}")
    done = ran(programs["environment"], phase, level, tmp_path / "w")
    assert "LC_ALL=" in done.stdout
    assert "PATH=/" in done.stdout
    assert "secret-of-ours" not in done.stdout


@pytest.mark.bubblewrap
def test_a_virtual_environment_under_tmp_is_confined_as_well(tmp_path: Path) -> None:
    """Its `python` is a link; namespaces empty /tmp and bind back what a child needs of it."""
    venv.create(tmp_path / "venv", symlinks=True)
    asked = """from pathlib import Path
from cudaops.executors.isolation.level import probe
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import run_bounded
for phase in ("compile", "kernel", "program"):
    done = run_bounded(["true"], cwd=Path("/"), timeout_s=30, confine=Confinement(phase))
    assert done.exit_code == 0, done
print(probe())
"""
    done = subprocess.run(
        [str(tmp_path / "venv" / "bin" / "python"), "-c", asked],
        env={**os.environ, "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == str(probe())
