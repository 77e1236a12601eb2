"""A step that fails, a level that is not reached, an account without rights: nothing runs free."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import cudaops
from cudaops.domain.judgement import IsolationLevel
from cudaops.domain.run import IsolationChoice
from cudaops.errors import PrerequisiteError, SandboxUnavailable
from cudaops.executors.isolation import level as levels
from cudaops.executors.isolation.level import enforce, level_of, probe, weaken
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import child_environment, run_bounded

ROOT = os.geteuid() == 0
NOBODY = 65533


def touch(folder: Path, confine: Confinement) -> None:
    run_bounded(["sh", "-c", "echo ran > witness"], cwd=folder, timeout_s=60, confine=confine)


@pytest.mark.parametrize("level", ["S2", "S3"])
def test_a_step_that_fails_starts_nothing(level: IsolationLevel, tmp_path: Path) -> None:
    if level_of("program", level) != level:
        pytest.skip(f"this machine reaches {probe().level}")
    gone = tmp_path / "gone"
    with pytest.raises(SandboxUnavailable) as raised:
        touch(tmp_path, Confinement("compile", writes=(tmp_path, gone), at_most=level))
    assert "gone" in raised.value.problem
    assert "CUDAOPS_ISOLATION" in raised.value.remedy
    assert not (tmp_path / "witness").exists()


def test_a_confinement_the_kernel_refuses_starts_nothing(tmp_path: Path) -> None:
    """Landlock takes sixteen layers and no seventeenth: a step of the launcher fails for real."""
    code = (
        "import sys; from pathlib import Path\n"
        "from cudaops.executors.isolation import landlock, launcher\n"
        "from cudaops.executors.isolation.landlock import READ, WRITE, EXECUTE, Rule\n"
        "from cudaops.executors.isolation.phases import Confinement\n"
        "from cudaops.executors.isolation.level import probe\n"
        "from cudaops.executors.process import run_bounded\n"
        "from cudaops.errors import SandboxUnavailable\n"
        "print(probe().level)\n"
        "rules = [Rule(Path('/'), landlock.handled(landlock.abi()))]\n"
        "spec = {'landlock': landlock.rule_set(landlock.abi(), rules), 'no_new_privileges': True}\n"
        "launcher.no_new_privileges(spec)\n"
        "for _ in range(16): launcher.landlock(spec)\n"
        "try:\n"
        "    c = Confinement('compile', writes=(Path.cwd(),), at_most='S2')\n"
        "    run_bounded(['sh', '-c', 'echo > witness'], cwd=Path.cwd(), timeout_s=60, confine=c)\n"
        "except SandboxUnavailable as problem:\n"
        "    print(problem.problem)\n"
    )
    if level_of("compile", "S2") != "S2":
        pytest.skip(f"this machine reaches {probe().level}")
    done = _python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "could not be confined: landlock" in done.stdout
    assert not (tmp_path / "witness").exists()


def test_a_missing_program_is_a_prerequisite_confined_too(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="no-such-program"):
        run_bounded(["no-such-program"], cwd=tmp_path, timeout_s=60, confine=Confinement("compile"))


@pytest.mark.parametrize(("wanted", "reached"), [("off", "S0"), ("S1", "S1")])
def test_less_than_the_machine_can(wanted: IsolationChoice, reached: IsolationLevel) -> None:
    assert enforce(wanted) == reached
    assert level_of("kernel") == reached


def test_more_than_is_reached_is_refused_with_a_remedy() -> None:
    """`auto` reaches what it reaches; a phase that bears less than what is wanted is an error."""
    assert enforce("auto") == probe().level
    weaken("gpu", "S1", "the GPU cannot be opened")
    assert level_of("gpu") == "S1"
    assert "S1" in levels.notices()[-1]
    if probe().level == "S1":
        pytest.skip("nothing above S1 here")
    enforce("S2")
    with pytest.raises(SandboxUnavailable, match="CUDAOPS_ISOLATION=auto"):
        weaken("gpu", "S1", "the GPU cannot be opened")


@pytest.mark.skipif(not ROOT, reason="only root can become another account")
def test_without_root(tmp_path: Path) -> None:
    """The same children from an account without a single capability."""
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    code = (
        "import os; from pathlib import Path\n"
        f"os.setgroups([]); os.setresgid({NOBODY}, {NOBODY}, {NOBODY})\n"
        f"os.setresuid({NOBODY}, {NOBODY}, {NOBODY})\n"
        "from cudaops.executors.isolation.level import probe\n"
        "from cudaops.executors.isolation.phases import Confinement\n"
        "from cudaops.executors.process import run_bounded\n"
        "here = Path.cwd() / 'w'; here.mkdir(); other = Path.cwd() / 'other'\n"
        "other.write_text('secret')\n"
        "ask = ('cat ' + str(other) + ' /proc/%d/environ; kill -9 %d; ' % ((os.getpid(),) * 2)\n"
        "       + '(setsid sleep 77 &) ; echo kept > mine; cat mine')\n"
        "for level in ('S2', 'S3'):\n"
        "    c = Confinement('compile', writes=(here,), at_most=level)\n"
        "    done = run_bounded(['sh', '-c', ask], cwd=here, timeout_s=60, confine=c)\n"
        "    print(probe().level, repr(done.stdout), done.stderr.count('ermission')"
        " + done.stderr.count('No such'))\n"
        "left = sum(x.strip() == 'sleep 77' for x in os.popen('ps -eo args').readlines())\n"
        "print('left', left)\n"
    )
    done = _python(code, tmp_path, _everybodys_python())
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[-1] == "left 0"
    if lines[0].startswith("S1"):
        pytest.skip("nothing above S1 here")
    for line in lines[:-1]:
        assert "'kept\\n' " in line, done.stdout
        assert int(line.split()[-1]) >= 2, done.stdout


def _everybodys_python() -> str:
    """One that an account without rights may start; ours may lie in root's home."""
    ours = Path(sys.executable).resolve()
    if all(p.stat().st_mode & 0o001 for p in (ours, *ours.parents)):
        return str(ours)
    version = f"python3.{sys.version_info.minor}"
    found = shutil.which(version, path="/usr/bin:/usr/local/bin")
    return found or pytest.skip(f"no {version} that another account may start")


def _python(
    code: str, folder: Path, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    where = os.pathsep.join((str(Path(cudaops.__file__).parents[1]), sysconfig.get_path("purelib")))
    env = child_environment({"PYTHONPATH": where, "PYTHONDONTWRITEBYTECODE": "1"})
    return subprocess.run(
        [python, "-c", code],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
