"""Programs that write into the recorder's own report and contents, through the `cpu` executor.

The recorder runs in their process: they find the report among their open files.
"""

from __future__ import annotations

import io
import os
import resource
import time
from pathlib import Path

import pytest

from cudaops.domain.execution import Captured, CaptureOutcome, Misbehaved
from cudaops.domain.program import Program
from cudaops.executors.capture.recording import kernel_ms
from cudaops.executors.capture.report import Malformed, least_needed
from cudaops.executors.cpu import report as cpu_report
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cpu.report import CheckerReport, read_report, report_of
from cudaops.executors.isolation.level import enforce
from cudaops.executors.untrusted_files import (
    UntrustedFileError,
    copy_untrusted,
    discard,
    open_untrusted,
    remove,
    write_fresh,
)
from cudaops.program.parse import load_program
from cudaops.program.plans import baseline_plan
from cudaops.timemodel.trace import BadTrace, read_trace
from tests.executors.cases import before, captured_case, compiled, program, went_wrong
from tests.executors.cuda.gpu_programs import StandInPrograms, on_gpu

SECRET = b"root:$6$do-not-show"
NAME = "0" * 32
FORGE = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
__global__ void k(float* a) { a[threadIdx.x] += 1; }
static int fd = -1;
static std::string folder;
static void find() {
  for (int i = 3; i < 64; i++) {
    char at[64], to[4096];
    snprintf(at, sizeof at, "/proc/self/fd/%d", i);
    ssize_t n = readlink(at, to, sizeof to - 1);
    if (n <= 0) continue;
    to[n] = 0;
    if (!strstr(to, "report.tsv")) continue;
    fd = i;
    folder = std::string(to).substr(0, std::string(to).rfind('/'));
  }
}
static void contents(const std::string& name, size_t size) {
  FILE* f = fopen((folder + "/" + name).c_str(), "w");
  for (size_t i = 0; i < size; i++) fputc('x', f);
  fclose(f);
}
int main(int argc, char** argv) {
  float* d;
  cudaMalloc(&d, 256);
  if (getenv("NEVER")) k<<<1, 64>>>(d);
  find();
  std::string mode = argv[1], secret = argv[2] + 1, name = std::string(32, '0') + "-256";
  std::string config = "config\t0\tk\t0\t0\t1\t1\t1\t64\t1\t1\t0\t\n", size = "256", blob = name;
  std::string count = "count\tk\t1\t0\t0.5\n", usage = "usage\t0\t1\t0.5\t1\n";
  std::string arg = "arg\t0\t0\tpointer\tf32\t0\t0\t0\n", more;
  std::string path = folder + "/" + name;
  if (mode == "absolute") blob = secret;
  if (mode == "above") blob = "../../secret";
  if (mode == "report") blob = "report.tsv";
  if (mode == "link") symlink(secret.c_str(), path.c_str());
  if (mode == "fifo") mkfifo(path.c_str(), 0666);
  if (mode == "folder") mkdir(path.c_str(), 0777);
  if (mode == "hard") link(secret.c_str(), path.c_str());
  if (mode == "own-hard") contents(name, 256), link(path.c_str(), (path + "b").c_str());
  if (mode == "short") contents(name, 19);
  if (mode == "sparse") truncate((contents(name, 0), path).c_str(), 1ll << 33);
  if (mode == "fine" || mode == "nul" || mode == "variable") contents(name, 256);
  if (mode == "size") size = "-256";
  if (mode == "huge-size") size = "99999999999999999999999999";
  if (mode == "nan") count = "count\tk\t1\t0\tnan\n";
  if (mode == "inf") usage = "usage\t0\t1\tinf\t1\n";
  if (mode == "site") config = "config\t0\tk\t7\t0\t1\t1\t1\t64\t1\t1\t0\t\n";
  if (mode == "grid") config = "config\t0\tk\t0\t0\t4294967295\t4294967295\t1\t64\t1\t1\t0\t\n";
  if (mode == "index") arg = "arg\t0\t0\tpointer\tf32\t0\t5\t0\n";
  if (mode == "element") arg = "arg\t0\t0\tpointer\t../x\t0\t0\t0\n";
  if (mode == "scalar") arg += "arg\t0\t1\tscalar\tf32\tzz\n";
  if (mode == "variable") more = "gbefore\t0\tv file " + secret + "\t256\t" + name + "\n";
  if (mode == "nul") count = std::string("count\tk\0\x1b[2J\t1\t0\t0.5\n", 21);
  if (mode == "short-lines") more = "host\nlimit\narg\nusage\nfault\nconfig\nbefore\ngraph\n";
  if (mode == "pc") more = "fault\tcrash\t-zz\tk\t@P-9@ @A99999999999@ @N5@\n";
  if (mode == "garbage") { std::string g(1 << 16, '\xff'); write(fd, g.data(), g.size()); }
  if (mode == "binary") { std::string g("\0\xff\n\n\t\n", 6); write(fd, g.data(), g.size()); }
  if (mode == "flood") {
    static char big[1 << 20];
    for (size_t i = 0; i < sizeof big; i += 8) memcpy(big + i, "count\ta\n", 8);
    for (int i = 0; i < 8; i++) if (write(fd, big, sizeof big) < 0) return 3;
  }
  if (mode == "endless") ftruncate(fd, 15ll << 30);
  if (mode == "deep") {
    chdir(folder.c_str());
    for (int i = 0; i < 1500; i++) { mkdir("d", 0777); chdir("d"); }
  }
  std::string all = count + config + usage + arg + "before\t0\t0\t" + size + "\t" + blob + "\n" +
                    "after\t0\t0\t" + blob + "\n" + more + "end\n";
  write(fd, all.data(), all.size());
  _exit(0);
}
"""


@pytest.fixture
def forge(tmp_path: Path) -> Program:
    (tmp_path / "forge.cu").write_text(FORGE, encoding="utf-8")
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "author").mkdir()
    return load_program(tmp_path / "forge.cu")


def capture(cpu: CpuExecutor, program: Program, folder: Path, mode: str) -> CaptureOutcome:
    """Behind a letter, since what an argument names is allowed."""
    executor = CpuExecutor("A10", cpu.cache, 2, folder / "author")
    argv = (mode, f"x{folder / 'secret'}")
    return executor.capture(program, None, argv, folder / "capture", 60.0)


def assert_not_shown(outcome: CaptureOutcome, folder: Path) -> None:
    assert SECRET.decode() not in outcome.model_dump_json()
    for path in (folder / "capture").rglob("*"):
        assert not path.is_symlink()
        if path.is_file():
            assert not path.samefile(folder / "secret")
            with path.open("rb") as file:
                assert SECRET not in file.read(1 << 20)


FORGED = (
    "absolute", "above", "report", "link", "fifo", "folder", "hard", "own-hard", "short", "sparse",
    "size", "huge-size", "nan", "inf", "site", "grid", "index", "element", "scalar", "variable",
    "nul", "short-lines", "pc", "garbage", "binary", "deep",
)  # fmt: skip


@pytest.mark.parametrize("mode", FORGED)
def test_a_forged_report_is_misbehaviour(
    cpu_executor: CpuExecutor, forge: Program, tmp_path: Path, mode: str
) -> None:
    outcome = capture(cpu_executor, forge, tmp_path, mode)
    assert isinstance(outcome, Misbehaved), outcome
    assert "\n" not in outcome.message
    assert outcome.message.isprintable()
    assert not (tmp_path / "capture" / "contents").exists()
    assert_not_shown(outcome, tmp_path)


@pytest.mark.parametrize("mode", ["absolute", "above", "link", "fifo", "hard", "own-hard"])
def test_without_landlock_links_lead_nowhere(
    cpu_executor: CpuExecutor,
    forge: Program,
    tmp_path: Path,
    mode: str,
) -> None:
    """Where files are not confined, the program can make links, pipes and second names."""
    enforce("S1")
    try:
        outcome = capture(cpu_executor, forge, tmp_path, mode)
    finally:
        enforce("auto")
    assert isinstance(outcome, Misbehaved), outcome
    said = {"link": "is a link", "fifo": "is not a regular file", "hard": "has a second name"}
    assert said.get(mode.removeprefix("own-"), "contents of the recorder's own") in outcome.message
    assert_not_shown(outcome, tmp_path)


def test_a_forged_report_without_a_fault_is_a_workload(
    cpu_executor: CpuExecutor, forge: Program, tmp_path: Path
) -> None:
    """Which holds nothing but the program's own bytes: the attacks fail for their faults alone."""
    outcome = capture(cpu_executor, forge, tmp_path, "fine")
    assert isinstance(outcome, Captured), outcome
    kept = Path(outcome.workloads[0].folder) / outcome.workloads[0].allocations[0].before
    assert kept.read_bytes() == b"x" * 256
    assert kept.stat().st_nlink == 1
    assert kept.stat().st_uid == os.geteuid()


@pytest.mark.parametrize("mode", ["flood", "endless"])
def test_a_report_beyond_its_bounds(
    cpu_executor: CpuExecutor, forge: Program, tmp_path: Path, mode: str
) -> None:
    resident_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = capture(cpu_executor, forge, tmp_path, mode)
    assert isinstance(outcome, Misbehaved), outcome
    assert outcome.what == "output_flood"
    assert "report of the run is too long" in outcome.message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident_kib < 120 << 10


def test_the_recorder_of_a_gpu_is_believed_as_little(
    cpu_executor: CpuExecutor, forge: Program, tmp_path: Path
) -> None:
    for mode in ("absolute", "above", "short", "garbage", "grid", "flood"):
        run = on_gpu(StandInPrograms(cpu_executor.cache), forge, mode, f"x{tmp_path / 'secret'}")
        outcome = run.capture(None, tmp_path / "capture")
        assert isinstance(outcome, Misbehaved), outcome
        assert_not_shown(outcome, tmp_path)


@pytest.mark.parametrize("tampering", ['fclose(fopen("out0.bin", "w"))', 'remove("out0.bin")'])
def test_an_output_that_was_tampered_with_is_misbehaviour(
    cpu_executor: CpuExecutor, tmp_path: Path, tampering: str
) -> None:
    """After the runner wrote it, by what a unit's own destructor does in its folder."""
    kernels = f"""
    struct Late {{
      ~Late() {{ if (FILE* f = fopen("out0.bin", "r")) {{ fclose(f); {tampering}; }} }}
    }};
    static Late late;
    __global__ void k(float* a) {{ a[threadIdx.x] += 1; }}
    """
    main = "float* a; cudaMalloc(&a, 256); k<<<1, 64>>>(a);"
    case = captured_case(cpu_executor, program(tmp_path, kernels, main), tmp_path)
    unit, plan = compiled(cpu_executor, case), baseline_plan(case.workload)
    found = cpu_executor.run(unit, case.workload, plan, before(case), tmp_path / "run")
    assert "'out0.bin'" in went_wrong(found).message


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A folder with everything that is no plain file of one name."""
    folder = tmp_path / "left"
    (folder / "real").mkdir(parents=True)
    (folder / "plain").write_bytes(b"abc")
    (folder / "real" / "inner").write_bytes(b"abc")
    (tmp_path / "secret").write_bytes(SECRET)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "dangling").symlink_to(tmp_path / "none")
    (folder / "away").symlink_to(folder / "real")
    os.link(tmp_path / "secret", folder / "hard")
    os.mkfifo(folder / "fifo")
    return folder


@pytest.mark.parametrize(
    "name",
    ["link", "dangling", "away", "away/inner", "hard", "fifo", "real", "none", "none/x", "plain/x",
     "../secret", "real/../../secret", "/etc/passwd", "", ".", "..", "pla\0in", "n" * 300],
)  # fmt: skip
def test_only_plain_files_are_taken_up(left: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(UntrustedFileError) as refused, open_untrusted(left, name):
        pass
    assert str(refused.value).isprintable()
    with pytest.raises(UntrustedFileError):
        copy_untrusted(left, name, tmp_path / "copy", 0, 1 << 30)
    assert not (tmp_path / "copy").exists()


def test_a_copy_has_the_bytes_and_the_holes(left: Path, tmp_path: Path) -> None:
    for name in ("plain", "real/inner"):
        copy_untrusted(left, name, tmp_path / name.replace("/", "-"), 3, 3)
        assert (tmp_path / name.replace("/", "-")).read_bytes() == b"abc"
    with (left / "sparse").open("wb") as file:
        file.write(b"a")
        file.seek(1 << 24)
        file.write(b"b")
        file.truncate(1 << 30)
    copy_untrusted(left, "sparse", tmp_path / "copy", 1 << 30, 1 << 30)
    made = (tmp_path / "copy").stat()
    assert made.st_size == 1 << 30
    assert made.st_blocks * 512 < 1 << 24
    with (tmp_path / "copy").open("rb") as copied:
        assert copied.read((1 << 24) + 1) == b"a" + bytes((1 << 24) - 1) + b"b"
    with pytest.raises(UntrustedFileError):
        copy_untrusted(left, "plain", tmp_path / "short", 4, 4)


def test_what_is_written_anew_goes_through_no_link(left: Path, tmp_path: Path) -> None:
    for name in ("link", "hard", "fifo", "real", "plain", "dangling", "new"):
        write_fresh(left / name, "text")
        assert (left / name).read_text("utf-8") == "text"
    discard(left / "away")
    assert (tmp_path / "secret").read_bytes() == SECRET
    assert not (tmp_path / "none").exists()


def test_a_deep_folder_goes(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    remove(folder)
    assert not folder.exists()


def test_a_report_that_is_no_file_is_not_waited_for(left: Path) -> None:
    for name in ("fifo", "link", "real", "hard"):
        found = read_report(left / name)
        assert found.lines == ()
        assert found.problem is not None
    assert read_report(left / "none") == ((), None)


def test_what_is_kept_of_a_report() -> None:
    text = b"usage\t1\t5\t0.1\t0\nusage\t2\t5\t0.1\t0\t0\t4\nusage\t3\t5\t0.1\t1\n"
    text += b"full\tk\nfull\tk\nend\nok"
    found = report_of(io.BytesIO(text))
    assert found.lines == (("usage", "3", "5", "0.1", "1"), ("full", "k"), ("end",))
    assert found.problem is None
    cut = report_of(io.BytesIO(b"ok\t1\n" + b"x" * (cpu_report.MOST_LINE_BYTES + 1)))
    assert cut.problem is not None
    assert cut.problem.what == "output_flood"


def test_many_sets_of_arguments_are_read_in_passing() -> None:
    """A million launches that differ in an argument are no flood."""
    text = b"".join(b"usage\t%d\t1\t1.23456789e-05\t0\n" % i for i in range(1_000_000))
    started = time.process_time()
    found = report_of(io.BytesIO(text))
    assert (found.lines, found.problem) == ((), None)
    assert time.process_time() - started < 10.0


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "\xff", "[" * 100_000, "1" * 5000, '{"sites": 1}',
     '{"cache_bytes":[0],"sites":[],"blocks":[],"overlaps":[]}',
     '{"cache_bytes":[1],"sites":[],"blocks":[{"block":NaN}],"overlaps":[]}',
     '{"cache_bytes":[1],"sites":[],"blocks":[],"overlaps":[[1,2]]}',
     '{"cache_bytes":[1e999],"sites":[],"blocks":[],"overlaps":[]}'],
)  # fmt: skip
def test_a_trace_is_believed_as_little(text: str) -> None:
    with pytest.raises(BadTrace):
        read_trace(text.encode("latin-1"), lambda addresses: {})


def test_a_printed_time_is_finite() -> None:
    assert kernel_ms("KERNEL_MS: 1e999\n") is None
    assert kernel_ms("KERNEL_MS: 1.5\n") == 1.5


@pytest.mark.parametrize(
    "line", [("k",), ("k", "-1"), ("k", "many"), ("k", "9" * 30), ("k", "1", "2")]
)
def test_no_room_that_no_recorder_asks_for(line: tuple[str, ...]) -> None:
    with pytest.raises(Malformed):
        least_needed(CheckerReport((("needs", *line),), None), "k")
    assert least_needed(CheckerReport((("needs", "k", "30"),), None), "k") == 30
    assert least_needed(CheckerReport((), None), "k") == 0
