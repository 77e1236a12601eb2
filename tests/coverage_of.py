"""Lines of cudaops/ that a lane of the tests reaches: `python -m tests.coverage_of [LANE]`.

Children that Python starts are measured too, where they keep our environment: confined ones do not,
so what runs in those alone counts as not reached. Tests take about a third longer.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

CONFIG = """[run]
source = cudaops
parallel = true
patch = subprocess
concurrency = thread,multiprocessing
data_file = {folder}/.coverage
[report]
skip_empty = true
"""


def main(lane: str, *options: str) -> int:
    """Run the lane, print what each folder and all together comes to; pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="cudaops-coverage-") as name:
        folder = Path(name)
        folder.chmod(0o777)  # children go by other accounts
        config = folder / "rc"
        config.write_text(CONFIG.format(folder=folder), encoding="utf-8")
        python = [sys.executable, "-m"]
        measured = [*python, "coverage", "run", f"--rcfile={config}", "-m", "pytest"]
        scheduled = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
        tests = subprocess.run([*measured, *scheduled, "--lane", lane, *options], check=False)
        for step in ("combine", "report"):
            subprocess.run([*python, "coverage", step, f"--rcfile={config}"], check=True)
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["test"])))
