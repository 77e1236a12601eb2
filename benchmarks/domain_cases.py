"""Wrong and honest rewrites by people who had not seen the code, through every gate on results.

    python benchmarks/domain_cases.py [PART ...]

Cases: benchmarks/domain_cases/{wrong,honest}, each beside the program that its line `// baseline:`
names. PART: only those whose path holds one of these. A line a case; exits with 1 where a wrong one
passes or an honest one is refused. `cpu` judges, without a bar on speed.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from mutation_score import ResultsOnly  # noqa: E402

from cudaops.domain.judgement import Policy  # noqa: E402
from cudaops.errors import CudaOpsError  # noqa: E402
from cudaops.executors.cpu.executor import CpuExecutor  # noqa: E402
from cudaops.program.parse import load_program  # noqa: E402
from cudaops.program.plans import make_rewrite  # noqa: E402
from cudaops.sandbox.workbench import open_workbench  # noqa: E402
from cudaops.settings import load_settings  # noqa: E402

CASES = Path(__file__).with_name("domain_cases")
BASELINE = re.compile(r"^// baseline: (\S+)$", re.MULTILINE)


def verdict(path: Path, baseline: Path, folder: Path) -> str:
    """The line of the gate that refuses it; empty where none does."""
    executor = CpuExecutor("A10", load_settings().builds_folder, program_folder=folder)
    bench = open_workbench(
        load_program(baseline), None, (), executor, Policy(), folder / "run",
        sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip
    rewrite = make_rewrite(path.read_text("utf-8"), "user", path.stem, "a case")
    looking = ResultsOnly(bench, rewrite, lambda line: None)
    return "" if looking.passes() else looking.gates[-1].line


def main(parts: list[str]) -> int:
    """Judge them all."""
    wrong_verdicts = 0
    for path in sorted(CASES.rglob("*.cu")):
        found = BASELINE.search(path.read_text("utf-8"))
        if found is None or (parts and not any(part in str(path) for part in parts)):
            continue
        kind = path.relative_to(CASES).parts[0]
        with tempfile.TemporaryDirectory(prefix="cudaops-case-") as folder:
            try:
                refused = verdict(path, CASES / kind / found[1], Path(folder))
            except CudaOpsError as problem:
                refused = str(problem)
        good = bool(refused) == (kind == "wrong")
        wrong_verdicts += not good
        name = path.relative_to(CASES)
        print("ok" if good else "NOT", name, refused[:160] or "passed", flush=True)
    return 1 if wrong_verdicts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
