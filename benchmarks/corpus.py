"""What `cudaops profile` says of a folder of programs: one subfolder each, with one .cu in it.

    python benchmarks/corpus.py FOLDER --args benchmarks/corpus_cpu_args.json --out FILE.json

The arguments file gives each program's command line by the name of its subfolder; without it the
file ARGS of the subfolder does. Programs run on the executor of `--executor`, one after another.
Writes a JSON record for each and prints a line; ends with how many reached a verdict. A program's
own files are read where they are, and nothing is written beside them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def profiled(folder: Path, argv: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """One program's row: its verdict, or the line that says why there is none."""
    (source,) = folder.glob("*.cu")
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / folder.name
        shutil.copytree(folder, place)
        command = [
            sys.executable, "-m", "cudaops", "profile", source.name, "--executor",
            options.executor, f"--timeout={options.timeout}", "--json", "--", *argv,
        ]  # fmt: skip
        began = time.monotonic()
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    row: dict[str, Any] = {
        "program": folder.name, "argv": argv, "exit": done.returncode,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    if done.returncode == 0:
        profile = json.loads(done.stdout)
        kernel = profile["baseline"]["kernel"]
        return {**row, "kernel": kernel, "verdict": profile["verdict"]}
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return {**row, "reason": said[-1] if said else "nothing was said"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--args", type=Path)
    parser.add_argument("--executor", default="cpu")
    parser.add_argument("--timeout", type=int, default=60)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    lines = json.loads(options.args.read_text()) if options.args else {}
    rows = []
    for folder in sorted(p for p in options.folder.iterdir() if p.is_dir()):
        if options.only and folder.name not in options.only:
            continue
        line = lines.get(folder.name)
        argv = (line if line is not None else (folder / "ARGS").read_text()).split()
        rows.append(profiled(folder, argv, options))
        said = rows[-1].get("verdict") or rows[-1]["reason"]
        print(f"{folder.name:<18} {rows[-1]['seconds']:6.1f} s  {said}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
    reached = sum("verdict" in row for row in rows)
    print(f"{reached} of {len(rows)} programs reached a verdict")
    return 0


if __name__ == "__main__":
    sys.exit(main())
