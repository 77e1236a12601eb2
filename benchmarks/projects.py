"""What `cudaops run` makes of projects as their authors have them, and of its patch by plain nvcc.

    python benchmarks/projects.py LIST.tsv --executor cuda --jobs 8 --limit 560 --out OUT

A line of LIST a project: its tree (beside LIST), the folder in it to work in, how it is built, what
is run, more words for `cudaops run`, and a command that makes files which the program reads; the
last two may be left out. Each is tried in a copy. Where a rewrite was found it is applied, the
patched tree is built by the project's own command with no compiler of ours in front, and run, the
patch is reverted, and the tree is compared with the original, byte for byte. Then the author's
is built and run in the same way: a word such as FAIL that only one of them prints is said.

Writes OUT/projects.json (a row a project, kept after each), a line a project, and OUT/runs.tar.xz.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from improve import ended, pack, recorded, strip
from pool import run_all
from rewrites import ran, ratios

from cudaops.executors.cuda.toolchain import require_nvcc, toolkit_home

AFTER_S = 40.0
"""Left for the patch when `cudaops run` is stopped for want of time."""
LEAST_S = 60.0
"""`cudaops run` is not begun with less."""


class Project(NamedTuple):
    """A line of the list."""

    tree: Path
    folder: str
    build: str
    run: str
    options: str = ""
    before: str = ""


def listed(path: Path) -> list[Project]:
    """The projects of a list, in its order."""
    lines = [line.split("\t") for line in path.read_text().splitlines() if line.strip()]
    return [Project((path.parent / tree).resolve(), *rest) for tree, *rest in lines]


def digest(tree: Path) -> str:
    """Of names, modes and contents of all files."""
    found = hashlib.sha256()
    for path in sorted(p for p in tree.rglob("*") if p.is_file() or p.is_symlink()):
        text = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        kept = hashlib.sha256(text).hexdigest()
        found.update(f"{path.relative_to(tree)} {path.lstat().st_mode:o} {kept}\n".encode())
    return found.hexdigest()


def shell(line: str, folder: Path, seconds: float) -> str:
    """What a command says that fails; empty where it ends well."""
    try:
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, capture_output=True, text=True, errors="replace",
            check=False, timeout=max(seconds, 1.0), stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"over {seconds:.0f} s: {line}"
    said = (done.stdout + done.stderr).strip()[-300:]
    return "" if done.returncode == 0 else f"exit {done.returncode}: {said}"


def plain(tree: Path, project: Project, gpu: int, ends: float) -> dict[str, Any]:
    """A tree built by its own command, in a copy, and run."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = shutil.copytree(tree, Path(scratch) / tree.name, symlinks=True) / project.folder
        if problem := shell(project.build, folder, ends - time.monotonic()):
            return {"problem": problem}
        name, *argv = shlex.split(project.run)
        found = shutil.which(folder / name) or shutil.which(name)
        if found is None:
            return {"problem": f"the build made no {name}"}
        return ran(Path(found), argv, folder, gpu, max(ends - time.monotonic(), 5.0))


def patched(tree: Path, project: Project, out: Path, gpu: int, ends: float) -> dict[str, Any]:
    """What becomes of a run's patch in the project's own tree."""
    was, apply = digest(tree), [sys.executable, "-m", "cudaops", "apply", str(out)]
    row: dict[str, Any] = {}

    def applied(*more: str) -> bool:
        done = ended([*apply, *more], tree / project.folder, gpu, 60.0)
        if done["exit"] != 0:
            row["said"] = done.get("said", "timeout")
        return done["exit"] == 0

    row["applied"] = applied() and digest(tree) != was
    if row["applied"]:
        row["patched"] = plain(tree, project, gpu, ends)
        row["reverted"] = applied("--revert")
    row["tree_as_before"] = digest(tree) == was
    if row["applied"]:
        author = row["author"] = plain(tree, project, gpu, ends)
        other = row["patched"]
        row["same"] = all(author.get(k) == other.get(k) for k in ("problem", "exit", "words"))
        row["ratios"] = ratios(author.get("times", []), other.get("times", []))
    return row


def tried(
    project: Project, gpu: int, left: float, options: argparse.Namespace, out: Path
) -> dict[str, Any] | None:
    """One project's row; nothing where the time is over."""
    ends = time.monotonic() + left
    if left < LEAST_S + AFTER_S:
        return None
    row: dict[str, Any] = {"project": project.tree.name, "run": project.run}
    with tempfile.TemporaryDirectory() as scratch:
        tree = shutil.copytree(project.tree, Path(scratch) / project.tree.name, symlinks=True)
        folder = tree / project.folder
        if project.before and (problem := shell(project.before, folder, LEAST_S)):
            return row | {"exit": None, "said": problem}
        command = [
            sys.executable, "-m", "cudaops", "run", *shlex.split(project.options),
            "--build", project.build, "--run", project.run, "--executor", options.executor,
            "--out", str(out), *shlex.split(options.options),
        ]  # fmt: skip
        seconds = min(options.each, ends - time.monotonic() - AFTER_S)
        row |= ended(command, folder, gpu if options.executor == "cuda" else None, seconds)
        row |= recorded(out)
        if row.get("outcome") in ("accepted", "provisional"):
            row["patch"] = patched(tree, project, out, gpu, ends)
    strip(out)
    return row


def said(row: dict[str, Any]) -> str:
    """A row in words."""
    if not (patch := row.get("patch")):
        return f"{row.get('reason') or row.get('said') or ''}"[:150]
    if not patch["applied"]:
        return f"NOT APPLIED: {patch.get('said')}"
    other = patch["patched"]
    runs = other.get("problem") or f"exit {other['exit']} {' '.join(other.get('words', []))}"
    as_author = "as the author's" if patch["same"] else f"AUTHOR'S {patch['author']}"
    tree = "tree as before" if patch["tree_as_before"] else "TREE CHANGED"
    return f"patched, by plain nvcc: {runs}, {as_author}, {tree}, times {patch['ratios']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("list", type=Path)
    parser.add_argument("--executor", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=2, help="projects at once")
    parser.add_argument("--gpus", type=int, default=1, help="share the jobs out to so many")
    parser.add_argument("--limit", type=float, default=560.0, help="seconds for all")
    parser.add_argument("--each", type=float, default=240.0, help="seconds for one run")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument(
        "--options", default="--max-iterations 1 --budget-minutes 2", help="of `cudaops run`"
    )
    options = parser.parse_args()
    began = time.monotonic()
    nvcc = require_nvcc()
    os.environ["PATH"] += f":{nvcc.parent}"
    os.environ["CUDA_HOME"] = os.environ["CUDA_PATH"] = str(toolkit_home(nvcc))
    jobs = [p for p in listed(options.list) if not options.only or p.tree.name in options.only]
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:

        def run(project: Project, gpu: int, left: float) -> dict[str, Any] | None:
            return tried(project, gpu, left, options, Path(scratch) / project.tree.name)

        for _, row in run_all(
            jobs, run, at_once=options.jobs, gpus=options.gpus, seconds=options.limit
        ):
            rows.append(row)
            (options.out / "projects.json").write_text(json.dumps(rows, indent=1) + "\n")
            sys.stdout.write(
                f"{time.monotonic() - began:4.0f} s  {row['project']}: {row.get('kernel')}, "
                f"{row.get('verdict')}, {row.get('outcome')} {row.get('speedup') or ''} "
                f"in {row.get('seconds')} s; {said(row)}\n"
            )
            sys.stdout.flush()
        pack(Path(scratch), options.out)
    patches = [row["patch"] for row in rows if "patch" in row]
    good = [row["speedup"] for row in rows if "patch" in row and row.get("speedup")]
    mean = math.exp(sum(map(math.log, good)) / len(good)) if good else 1.0
    sys.stdout.write(
        f"{len(jobs)} projects, {len(jobs) - len(rows)} not reached; "
        f"{sum(bool(row.get('verdict')) for row in rows)} verdicts; {len(patches)} improved, "
        f"geometric mean of those {mean:.2f}x; {sum(p['applied'] for p in patches)} applied, "
        f"{sum(bool(p.get('same')) for p in patches)} built and ran as the author's, "
        f"{sum(p['tree_as_before'] for p in patches)} trees as before\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
