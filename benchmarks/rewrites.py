"""Times rewritten programs beside their authors', both built by plain nvcc: what each prints.

    python benchmarks/rewrites.py AUTHORS REWRITES --gpus 2 --out OUT [--args lines.json]

AUTHORS: a folder a program, with one .cu, its headers and ARGS (`authored.py`). REWRITES: NAME.cu
each. Every line that a program prints about a time stands in OUT/rewrites.json from both, and the
ratio of their numbers; so do words such as FAIL that only one of them prints. `--args`: other lines
than ARGS, by name, where an author's program would run for minutes. One at a time on each GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.authored import authored_in

TIME_LINE = re.compile(r"\btime\b|usec|KERNEL_MS", re.IGNORECASE)
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
FAILED = re.compile(r"\b(fail\w*|mismatch\w*|incorrect|wrong|error|pass\w*|ok)\b", re.IGNORECASE)
LONGEST_S = 90.0


def built(folder: Path, text: Path, exe: Path) -> str:
    """What nvcc says against it; empty where it builds."""
    work = exe.with_suffix(".tree")
    shutil.copytree(folder, work)
    (main,) = work.glob("*.cu")
    shutil.copy(text, main)
    more = authored_in(folder).nvcc_words
    command = ["nvcc", "-O3", "-arch=native", "-std=c++17", *more, main.name, "-o", str(exe)]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    return done.stderr.strip()[:300] if done.returncode else ""


def ran(
    exe: Path, argv: list[str], folder: Path, gpu: int, seconds: float = LONGEST_S
) -> dict[str, Any]:
    """Time lines and verdict words of one run."""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)}
    began = time.monotonic()
    try:
        done = subprocess.run(
            [str(exe), *argv], cwd=folder, capture_output=True, text=True, errors="replace",
            check=False, timeout=seconds, env=env, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"exit": f"over {seconds:.0f} s"}
    lines = (done.stdout + done.stderr).splitlines()
    return {
        "exit": done.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "times": [line.strip() for line in lines if TIME_LINE.search(line)][:12],
        "words": sorted({w.lower() for line in lines for w in FAILED.findall(line)}),
    }


def ratios(author: list[str], rewritten: list[str]) -> list[float | None]:
    """Author's number over the rewrite's on each line that both print, by the first number that
    differs."""
    found: list[float | None] = []
    for ours, theirs in zip(author, rewritten, strict=False):
        pairs = zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=False)
        first = next(((float(a), float(b)) for a, b in pairs if a != b), None)
        found.append(round(first[0] / first[1], 2) if first and first[1] else None)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("authors", type=Path)
    parser.add_argument("rewrites", type=Path)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--args", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    others = json.loads(options.args.read_text()) if options.args else {}
    names = sorted(path.stem for path in options.rewrites.glob("*.cu"))
    rows: dict[str, dict[str, Any]] = {name: {} for name in names}
    waiting: queue.Queue[str] = queue.Queue()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor() as pool:

        def exe(name: str, side: str) -> Path:
            return Path(scratch) / f"{name}-{side}"

        def build(name: str) -> None:
            folder = options.authors.resolve() / name
            main = authored_in(folder).path
            texts = (("author", main), ("rewrite", options.rewrites.resolve() / f"{name}.cu"))
            problems = [built(folder, text, exe(name, side)) for side, text in texts]
            rows[name]["problem"] = next((p for p in problems if p), "")

        def work(gpu: int) -> None:
            while True:
                try:
                    name = waiting.get_nowait()
                except queue.Empty:
                    return
                folder, row = options.authors.resolve() / name, rows[name]
                row["args"] = others.get(name, authored_in(folder).args)
                for side in ("author", "rewrite"):
                    row[side] = ran(exe(name, side), shlex.split(row["args"]), folder, gpu)
                times = [row[side].get("times", []) for side in ("author", "rewrite")]
                row["ratios"] = ratios(*times)
                sys.stdout.write(f"{name}: {json.dumps(row)}\n")
                sys.stdout.flush()

        list(pool.map(build, names))
        for name in names:
            if rows[name]["problem"]:
                sys.stdout.write(f"{name}: {rows[name]['problem']}\n")
            else:
                waiting.put(name)
        list(pool.map(work, range(options.gpus)))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "rewrites.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
