"""What `cudaops run` makes of a folder of programs: one subfolder each, with one .cu and ARGS
(`authored.py`).

    python benchmarks/improve.py FOLDER --executor cuda --jobs 4 --limit 560 --part 1/3 --out OUT

Writes OUT/improve.json (a row a program, kept after each), a line a program, and OUT/runs.tar.xz
with reports, events and rewrites. On `cuda` every best.cu is also built by plain nvcc and run
beside the author's program: a word such as FAIL that the author's does not print is said. `--args`
as in corpus.py: what `cpu` judges on, while ARGS stay what it times. `--part K/N` for every N-th
program from the K-th on. Ends with how many were improved, and the geometric mean of those.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from rewrites import built, ran, ratios  # noqa: E402

from benchmarks.authored import authored_in  # noqa: E402

BEGAN = time.monotonic()
LEAST_S = 60.0
"""No program is begun with less time left."""
_KEPT = ("report.md", "run.json", "events.jsonl", "best.cu", "best.patch", "iterations")


def improved(
    folder: Path, small: str | None, options: argparse.Namespace, out: Path, gpu: int | None
) -> dict[str, Any]:
    """One program's row. `small`: arguments to judge on, where its own are for time alone; `gpu`:
    the only one it may see."""
    source = authored_in(folder)
    left = options.limit - (time.monotonic() - BEGAN)
    argv = source.args
    lines = [argv] if small in (None, argv) else [f"judged: {small}", f"timed: {argv}"]
    command = [
        sys.executable, "-m", "cudaops", "run", source.path.name, "--executor", options.executor,
        "--timeout", "100", "--out", str(out), *options.options.split(),
        *(word for line in lines for word in ("--args", line)),
    ]  # fmt: skip
    if source.nvcc:
        command += ["--nvcc", source.nvcc]
    if source.kernel:
        command += ["--kernel", source.kernel]
    row: dict[str, Any] = {"program": folder.name, "args": lines}
    row |= ended(command, folder, gpu, min(options.each, left)) | recorded(out)
    strip(out)
    return row


def ended(command: list[str], folder: Path, gpu: int | None, seconds: float) -> dict[str, Any]:
    """How a command of cudaops in a folder ends within so many seconds, and its last line."""
    began = time.monotonic()
    env = {**os.environ, "CUDAOPS_MEMORY": "off"}
    if gpu is not None:
        env["CUDA_VISIBLE_DEVICES"] = str(gpu)
    row: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as own:
        running = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=env | {"TMPDIR": own}, start_new_session=True,
        )  # fmt: skip
        try:
            said = running.communicate(timeout=seconds)[1].strip().splitlines()
            row |= {"exit": running.returncode, "said": said[-1][:300] if said else ""}
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            row["exit"] = "timeout"
    row["seconds"] = round(time.monotonic() - began, 1)
    return row


def recorded(out: Path) -> dict[str, Any]:
    """What a run's folder says."""
    row: dict[str, Any] = {}
    if (out / "run.json").is_file():
        record = json.loads((out / "run.json").read_text())
        verify = record.get("verify") or {}
        kept = ("outcome", "reason", "seconds_by_tool", "end", "transformations")
        row |= {name: record.get(name) for name in kept}
        row |= {"speedup": verify.get("speedup"), "best_ms": verify.get("candidate_kernel_ms")}
        row["kernel"] = (record.get("program") or {}).get("kernel")
        row["verdict"] = (record.get("profile") or {}).get("subtype")
        row["measured"] = measured(record)
        row["tried"] = [a["title"] for a in record.get("attempts") or []]
    return row


def strip(out: Path) -> None:
    """Takes what is not kept out of a run's folder."""
    for path in out.iterdir() if out.is_dir() else ():
        if path.is_dir() and path.name not in _KEPT:  # gigabytes of a program's buffers
            shutil.rmtree(path, ignore_errors=True)


def pack(runs: Path, out: Path) -> None:
    """OUT/runs.tar.xz: what is kept of each run."""
    with tarfile.open(out / "runs.tar.xz", "w:xz") as kept:
        for path in sorted(p for name in _KEPT for p in runs.glob(f"*/{name}")):
            kept.add(path, path.relative_to(runs))


def measured(record: dict[str, Any]) -> dict[str, Any] | None:
    """What a model of times is compared with: kernel, launch, microseconds of it by ncu and, by the
    clock that decides, in the mean over timed launches, the author's and the last candidate's; and
    the verdict."""
    profile = (record.get("profile") or {}).get("baseline")
    if not profile:
        return None
    timed = record["program"]["timed"][0]
    last = next((a for a in reversed(record["attempts"]) if a.get("times")), {})
    return {
        "kernel": timed["callee"], "device": profile["device"], "source": profile["source"],
        "grid": list(timed["grid"].values()), "block": list(timed["block"].values()),
        "launch_us": profile["duration_us"], "author_us": last.get("baseline_us"),
        "candidate_us": last.get("candidate_us"), "subtype": record["profile"]["subtype"],
        "candidate": last.get("title"), "outcome": record["outcome"],
    }  # fmt: skip


def beside(folder: Path, best: Path, gpu: int) -> tuple[str, list[float | None]]:
    """What the rewritten program says, built by nvcc alone, beside the author's, and how many
    times as long the author's takes by each line of times that both print."""
    source = authored_in(folder)
    found, times = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in (("author", source.path), ("best", best)):
            exe = Path(scratch) / name
            if problem := built(folder, text, exe):
                return f"{name} does not compile: {problem}", []
            done = ran(exe, source.argv, folder, gpu)
            found.append((done["exit"], done.get("words", [])))
            times.append(done.get("times", []))
    same = "the same" if found[0] == found[1] else f"author {found[0]}, best {found[1]}"
    return same, ratios(*times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--args", type=Path)
    parser.add_argument("--executor", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=2, help="programs at once")
    parser.add_argument(
        "--gpus", type=int, help="share the jobs out to so many (default: the first)"
    )
    parser.add_argument("--limit", type=float, default=560.0, help="seconds for all")
    parser.add_argument("--each", type=float, default=240.0, help="seconds for one")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--part", default="1/1", help="K/N: every N-th program from the K-th on")
    parser.add_argument("--options", default="", help="of `cudaops run`")
    options = parser.parse_args()
    lines = json.loads(options.args.read_text()) if options.args else {}
    waiting: queue.Queue[Path] = queue.Queue()
    folders = [f for f in sorted(options.folder.resolve().iterdir()) if (f / "ARGS").is_file()]
    part, parts = map(int, options.part.split("/"))
    mine = folders[part - 1 :: parts]
    if options.only:  # in the order asked for
        named = {folder.name: folder for folder in mine}
        mine = [named[name] for name in options.only if name in named]
    for folder in mine:
        waiting.put(folder)
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    writing = threading.Lock()
    with tempfile.TemporaryDirectory() as scratch:
        runs = Path(scratch)

        def keep(row: dict[str, Any], said: str) -> None:
            with writing:
                (options.out / "improve.json").write_text(json.dumps(rows, indent=1) + "\n")
            why = (row.get("reason") or row.get("said") or "")[:100]
            at = f"{time.monotonic() - BEGAN:5.0f} s  {row['program']:20s}"
            sys.stdout.write(f"{at} {said} {row.get('speedup')} {why}\n")
            sys.stdout.flush()

        def work(gpu: int | None) -> None:
            while options.limit - (time.monotonic() - BEGAN) > LEAST_S:
                try:
                    folder = waiting.get_nowait()
                except queue.Empty:
                    return
                small, out = lines.get(folder.name), runs / folder.name
                row = improved(folder, small, options, out, gpu)
                with writing:
                    rows.append(row)
                keep(row, f"exit {row['exit']}, {row['seconds']} s: {row.get('outcome')}")
                if options.executor == "cuda" and row.get("outcome") == "accepted":
                    # After its row is kept: programs that check on the processor take minutes.
                    same, row["printed"] = beside(folder, out / "best.cu", gpu or 0)
                    row["plain_nvcc"] = same
                    keep(row, f"by plain nvcc: {same}, printed times {row['printed'][:12]},")

        with ThreadPoolExecutor(max_workers=options.jobs) as pool:
            gpus = [n % options.gpus if options.gpus else None for n in range(options.jobs)]
            for job in [pool.submit(work, gpu) for gpu in gpus]:
                job.result()
        pack(runs, options.out)
    good = [r["speedup"] for r in rows if r.get("outcome") in ("accepted", "provisional")]
    mean = math.exp(sum(map(math.log, good)) / len(good)) if good else 1.0
    sys.stdout.write(
        f"{len(rows)} programs, {waiting.qsize()} not reached; {len(good)} improved, "
        f"geometric mean of those {mean:.2f}x\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
