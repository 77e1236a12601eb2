"""What each gate costs on examples/naive_matmul.cu with the `cpu` executor.

    python benchmarks/gate_costs.py            print the table
    python benchmarks/gate_costs.py --write    put it into docs/verification.md

Needs g++; nvcc for the gates that use it. Every cache is empty at the start, so that compiling
counts. The seconds are each gate's own, as the run's record has them; what the oracle takes once a
program (the author's kernel on every input set) stands in a line of its own.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cudaops.domain.run import RunRecord  # noqa: E402
from cudaops.graph.events import read_events  # noqa: E402

BEGIN, END = "<!-- gate-costs:begin -->", "<!-- gate-costs:end -->"
PAGE = ROOT / "docs" / "verification.md"


def take(folder: Path) -> RunRecord:
    """One run of one iteration with every cache empty."""
    environment = {**os.environ, "CUDAOPS_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "cudaops", "run", "examples/naive_matmul.cu"]
    options = ["--executor", "cpu", "--max-iterations", "1", "--out", str(folder / "run"), "--json"]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"the run ended with exit code {done.returncode}")
    return RunRecord.model_validate_json(done.stdout)


def table(record: RunRecord, stage_seconds: float) -> str:
    """Markdown: a line a gate, and the sum."""
    assert record.judgement is not None
    gates = [g for g in record.judgement.gates if g.name != "speedup"]
    rows = [f"| `{g.name}` | {g.seconds:.2f} |" for g in gates]
    spent = sum(g.seconds for g in gates)
    date = datetime.date.today().isoformat()
    head = (
        f"`python benchmarks/gate_costs.py --write`, {date}, {len(os.sched_getaffinity(0))} cores "
        f"{platform.machine()}, no GPU, caches empty, isolation {record.judgement.isolation}. The "
        f"whole stage took {stage_seconds:.1f} s; the rest of it is the oracle, made once per "
        "program, and the timing."
    )
    lines = ["| gate | seconds |", "|---|---|", *rows, f"| all of them | {spent:.2f} |"]
    return f"{head}\n\n" + "\n".join(lines)


def main() -> None:
    """Run, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    with tempfile.TemporaryDirectory(prefix="cudaops-gates-") as name:
        record = take(Path(name))
        ended = read_events(Path(name) / "run" / "events.jsonl")
        stage = sum(
            float(e.data["seconds"])
            for e in ended
            if e.stage == "sandbox" and e.kind == "finished" and "seconds" in e.data
        )
    found = table(record, stage)
    print(found)
    if write:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        if not rest:
            raise SystemExit(f"{PAGE} has no {BEGIN}")
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{found}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
