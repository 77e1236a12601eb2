"""How many small faults in a kernel the judge refuses, and whether it refuses the kernel itself.

    python benchmarks/mutation_score.py [--kernels 25] [--mutants 500] [--aa 100]
        [--programs FOLDER...] [--jobs N] [--seed S] [--out DIR]

Programs: the authors' of tests/exploits and examples, then every .cu with a `main` under each
FOLDER, with what is said beside it (`authored.py`). Of each of the first `--aa` the kernel renamed,
nothing else changed, goes through the gates on results (A/A): none may be refused, but for a fault
that the judge names in its author's kernel as well. Of the first `--kernels` that pass, mutants
(`mutants.py`) go the same way; what does not compile is drawn anew. Nothing is timed. A survivor
that nvcc makes the same PTX of is equivalent; of the others a person says whether they compute
something else anywhere in the domain. Score: refused of all that are not equivalent.

Writes DIR/mutation.jsonl as results come, then mutation.json and mutation.md. `cpu` judges: g++ is
needed, nvcc for equivalence.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import math
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from mutants import Changed, mutants, mutated, whole_copy  # noqa: E402

from benchmarks.authored import Authored, authored_below  # noqa: E402
from cudaops.cuda.devices import device  # noqa: E402
from cudaops.cuda.nvcc_line import nvcc_words  # noqa: E402
from cudaops.domain.judgement import Gate, Policy  # noqa: E402
from cudaops.domain.options import ProgramRun  # noqa: E402
from cudaops.domain.program import PLAIN  # noqa: E402
from cudaops.domain.rewrite import Rewrite  # noqa: E402
from cudaops.errors import CudaOpsError  # noqa: E402
from cudaops.executors.cpu.executor import CpuExecutor  # noqa: E402
from cudaops.executors.cuda.source import unit_source  # noqa: E402
from cudaops.executors.cuda.toolchain import find_nvcc  # noqa: E402
from cudaops.gates.evaluate import Evaluating  # noqa: E402
from cudaops.gates.preprocessed import CODE_FLAGS  # noqa: E402
from cudaops.program.compilation import read_compilation  # noqa: E402
from cudaops.program.parse import load_program  # noqa: E402
from cudaops.program.syntax import NotUnderstood  # noqa: E402
from cudaops.sandbox.whole_program import whole_program_gates  # noqa: E402
from cudaops.sandbox.workbench import Workbench, open_workbench  # noqa: E402
from cudaops.settings import load_settings  # noqa: E402
from cudaops.transformations.draft import Draft, Subject  # noqa: E402

DEVICE = "A10"
"""Nothing is timed: it says how much shared memory there is, and what nvcc compiles for."""
GRACE_S = 90.0
"""Beyond `--program-seconds` before a program's process is ended: a mutant takes 10 to 30 s."""
AUTHORS_FAULT = "the author's kernel is not right either"
"""As the gate `checker` says it."""
COUNTED = ("refused", "survived")
"""Verdicts that the score is made of. The others: equivalent, not compiled, not judged."""
NO_CODE = re.compile(r"^\s*//[^\n]*$", re.MULTILINE)
OWN_TAG = re.compile(r"_(?:INTERNAL_|GLOBAL__N__)?[0-9a-f]{8}_\d+_")
"""In PTX: what nvcc puts into names, another in every compilation."""


class Source(NamedTuple):
    """One author's program."""

    name: str
    given: Authored


# Programs


def programs_in(folder: Path) -> Iterator[Source]:
    """Every program under a folder, by path."""
    for one in authored_below(folder):
        if "__global__" in one.text:
            name = one.path.relative_to(folder).with_suffix("").as_posix()
            yield Source(f"{folder.name}/{name}", one)


def own_programs() -> Iterator[Source]:
    """The authors' programs of this repository."""
    exploits = ROOT / "tests" / "exploits"
    # A rewrite that brings a `main` is no author's.
    yield from (p for p in programs_in(exploits) if "@launch" not in p.given.text)
    yield from programs_in(ROOT / "examples")


# One program, in a process of its own


class ResultsOnly(Evaluating):
    """The gates that say whether a rewrite is right, and none that says how fast it is."""

    def passes(self) -> bool:
        """Every gate on text, objects and results, up to the first that fails."""
        compiled = self.build()
        return (
            compiled is not None
            and self.right(compiled)
            and all(
                self._add(gate) for gate in islice(whole_program_gates(self.bench, self.rewrite), 1)
            )
        )


def judge_program(options: argparse.Namespace) -> None:
    """A/A and mutants of one program; a JSON line each on standard output."""
    began = time.monotonic()
    told: dict[str, Any] = {"program": options.name}

    def tell(kind: str, **more: Any) -> None:
        print(json.dumps({"kind": kind, **told, **more}), flush=True)

    with tempfile.TemporaryDirectory(prefix="cudaops-mutants-") as folder:
        try:
            bench = _opened(options, Path(folder))
            draft = whole_copy(Draft.of(Subject(bench.program, bench.kernel, bench.workloads)))
            told["kernel"] = bench.kernel.name
            rewrite = draft.rewrite()
            opened = time.monotonic()
            gate = _refusal(bench, rewrite)
        except (CudaOpsError, NotUnderstood) as problem:
            tell("left out", why=str(problem), seconds=round(time.monotonic() - began, 1))
            return
        tell(
            "aa", passed=gate is None, **_refused_by(gate),
            by_fault=gate is not None and AUTHORS_FAULT in gate.summary,
            open_seconds=round(opened - began, 1), seconds=round(time.monotonic() - opened, 1),
        )  # fmt: skip
        if gate is not None or not options.mutants:
            return
        try:
            _judge_mutants(bench, draft, options, began, tell)
        except NotUnderstood as problem:
            tell("no mutants", why=str(problem))


def _opened(options: argparse.Namespace, folder: Path) -> Workbench:
    kept = load_settings().builds_folder
    executor = CpuExecutor(DEVICE, kept.with_name(f"{kept.name}-mutants"), options.workers)
    source = Path(options.one)
    compilation = read_compilation(options.nvcc, source.parent)[0] if options.nvcc else PLAIN
    return open_workbench(
        load_program(source, compilation),
        None,
        (ProgramRun(argv=tuple(shlex.split(options.argv))),),
        executor,
        Policy(seed=options.seed),
        folder,
        sm_arch=device(DEVICE).sm_arch,
        timeout_s=options.timeout,
    )


def _refusal(bench: Workbench, rewrite: Rewrite) -> Gate | None:
    """The gate that refused it; None where all pass. Raises what the bench does."""
    looking = ResultsOnly(bench, rewrite, lambda said: None)
    return None if looking.passes() else looking.gates[-1]


def _refused_by(gate: Gate | None) -> dict[str, str]:
    return {} if gate is None else {"gate": gate.name, "why": gate.summary[:400]}


def _judge_mutants(
    bench: Workbench, draft: Draft, options: argparse.Namespace, began: float, tell: Any
) -> None:
    """So many that compile, or as many as there is time for."""
    counted = 0
    authors: str | None = None
    for changed in mutants(draft, f"{options.seed}:{options.name}"):
        if counted == options.mutants:
            return
        if time.monotonic() - began > options.program_seconds:
            tell("cut", judged=counted)
            return
        started = time.monotonic()
        row = {
            "operator": changed.operator, "line": changed.line, "before": changed.before,
            "after": changed.after, "sha256": hashlib.sha256(changed.text.encode()).hexdigest(),
        }  # fmt: skip
        try:
            verdict, gate = _verdict(bench, draft, changed)
            if verdict == "survived" and find_nvcc() is not None:
                authors = authors or _ptx(bench, draft.rewrite())
                if authors == _ptx(bench, mutated(draft, changed).rewrite()):
                    verdict = "equivalent"
            row |= {"verdict": verdict, **_refused_by(gate)}
        except (CudaOpsError, NotUnderstood, subprocess.SubprocessError) as problem:
            row |= {"verdict": "not judged", "why": str(problem)[:400]}
        counted += row["verdict"] in (*COUNTED, "equivalent")
        tell("mutant", **row, seconds=round(time.monotonic() - started, 1))


def _verdict(bench: Workbench, draft: Draft, changed: Changed) -> tuple[str, Gate | None]:
    gate = _refusal(bench, mutated(draft, changed).rewrite())
    if gate is None:
        return "survived", None
    by_nvcc = gate.name == "object" and "nvcc -ptx refuses it" in gate.summary
    return ("not compiled" if gate.name == "compile" or by_nvcc else "refused"), gate


def _ptx(bench: Workbench, rewrite: Rewrite) -> str:
    """What nvcc makes of the unit, without what differs from one compilation to the next. Raises
    SubprocessError."""
    source = unit_source(bench.unit(bench.workloads[0], rewrite))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in source.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        words = nvcc_words(bench.program.code_options)
        command = [str(find_nvcc()), *CODE_FLAGS, *words, f"-arch={bench.sm_arch}", "-ptx"]
        subprocess.run(
            [*command, "-o", "unit.ptx", source.main], cwd=folder, check=True, capture_output=True,
            timeout=180,
        )  # fmt: skip
        text = (folder / "unit.ptx").read_text("utf-8")
    return OWN_TAG.sub("_", NO_CODE.sub("", text))


# All of them


class Running:
    """What has come so far, kept in `mutation.jsonl`, and who is asked for mutants."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rows: list[dict[str, Any]] = []
        self._options = options
        self._lock = threading.Lock()
        self._promised = 0
        self._kept = options.out / "mutation.jsonl"
        self._kept.write_text("")
        self._share = math.ceil(options.mutants / max(1, options.kernels))

    def one(self, source: Source) -> None:
        """One program in a process of its own, which its time ends."""
        with self._lock:
            chosen = self._promised < self._options.kernels
            self._promised += chosen
        rows = self._judged(source, self._share if chosen else 0)
        if chosen and not any(row["kind"] == "mutant" for row in rows):
            with self._lock:  # the next one takes its place
                self._promised -= 1

    def _judged(self, source: Source, count: int) -> list[dict[str, Any]]:
        options, rows = self._options, []
        command = [
            sys.executable, __file__, "--one", source.given.path.name, "--name", source.name,
            f"--argv={source.given.args}", f"--nvcc={source.given.nvcc}", "--mutants", str(count),
            "--seed", str(options.seed), "--program-seconds", str(options.program_seconds),
            "--timeout", str(options.timeout), "--workers", str(max(1, cores() // options.jobs)),
        ]  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="cudaops-mutants-") as name:
            place = Path(name) / "program"
            shutil.copytree(source.given.path.parent, place)
            errors = Path(name) / "errors"
            with errors.open("w") as heard:
                child = subprocess.Popen(
                    command, cwd=place, stdout=subprocess.PIPE, stderr=heard, text=True,
                    env=os.environ | {"TMPDIR": name}, start_new_session=True,
                )  # fmt: skip
            ended = threading.Timer(options.program_seconds + GRACE_S, _end, [child])
            ended.start()
            assert child.stdout is not None
            for line in child.stdout:
                rows.append(json.loads(line))
                self._keep(rows[-1])
            code = child.wait()
            ended.cancel()
            if code != 0:
                said = errors.read_text(errors="replace").strip().splitlines()
                why = "out of time" if code == -signal.SIGKILL else (said or ["?"])[-1][:400]
                kind = "cut" if rows else "left out"
                rows.append({"kind": kind, "program": source.name, "why": why})
                self._keep(rows[-1])
        return rows

    def _keep(self, row: dict[str, Any]) -> None:
        with self._lock, self._kept.open("a", encoding="utf-8") as kept:
            self.rows.append(row)
            kept.write(json.dumps(row) + "\n")
            print(said(row), flush=True)


def cores() -> int:
    """Of this machine, those that this process may use."""
    return len(os.sched_getaffinity(0))


def _end(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def said(row: dict[str, Any]) -> str:
    """One line a person reads."""
    head = f"{row['program']:<28} {row['kind']:<8}"
    if row["kind"] == "mutant":
        how = f"{row['verdict']:<12} {row.get('gate', ''):<22} {row['seconds']:6.1f} s"
        return f"{head} {how}  {row['operator']}: {row['after'][:80]}"
    if row["kind"] == "aa":
        how = "passed" if row["passed"] else f"REFUSED by {row['gate']}: {row['why']}"
        return f"{head} {how}, {row['seconds']:.1f} s"
    return f"{head} {row.get('why', '')}"


# Its result


def score(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts of some mutants, and the share that was refused of those that are not equivalent."""
    verdicts = Counter(row["verdict"] for row in rows)
    counted = sum(verdicts[one] for one in COUNTED)
    return {
        "mutants": counted + verdicts["equivalent"],
        **{one: verdicts[one] for one in ("refused", "survived", "equivalent", "not compiled")},
        "not judged": verdicts["not judged"],
        "score": round(verdicts["refused"] / counted, 4) if counted else None,
    }


def summary(rows: Sequence[dict[str, Any]], command: str) -> dict[str, Any]:
    """Everything that the tables show."""
    found = [row for row in rows if row["kind"] == "mutant"]
    at_fault = [row for row in rows if row["kind"] == "aa" and row["by_fault"]]
    asked = [row for row in rows if row["kind"] == "aa" and not row["by_fault"]]
    seconds = sorted(row["seconds"] for row in found if row["verdict"] != "not compiled")

    def by(key: str) -> dict[str, Any]:
        names = sorted({row[key] for row in found})
        return {name: score([row for row in found if row[key] == name]) for name in names}

    return {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{cores()} cores {platform.machine()}, {platform.node()}, no GPU used",
        "seconds_a_mutant": {
            "median": seconds[len(seconds) // 2] if seconds else None,
            "most": seconds[-1] if seconds else None,
        },
        "all": score(found),
        "by_operator": by("operator"),
        "by_program": by("program"),
        "by_gate": dict(Counter(row["gate"] for row in found if row["verdict"] == "refused")),
        "survivors": [row for row in found if row["verdict"] == "survived"],
        "aa": {
            "asked": len(asked),
            "refused": [row for row in asked if not row["passed"]],
            "authors_fault": at_fault,
        },
        "left_out": [row for row in rows if row["kind"] in ("left out", "no mutants", "cut")],
    }


def markdown(found: dict[str, Any]) -> str:
    """The tables as a page."""
    aa, took = found["aa"], found["seconds_a_mutant"]
    lines = [
        f"`{found['command']}`, {found['date']}, {found['machine']}.",
        f"A mutant takes {took['median']} s, {took['most']} s at most.",
        "",
        f"A/A: {aa['asked'] - len(aa['refused'])} of {aa['asked']} kernels passed, renamed only.",
        *(f"- {r['program']}, `{r['gate']}`: {r['why']}" for r in aa["refused"]),
        "",
        "Not asked, for its author's kernel is not right either:",
        *(f"- {r['program']}, `{r['gate']}`: {r['why']}" for r in aa["authors_fault"]),
    ]
    for key, head in (("by_program", "program"), ("by_operator", "operator")):
        lines += ["", f"| {head} | mutants | equivalent | refused | survived | score |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [_row(name, one) for name, one in found[key].items()]
        lines += [_row("**all**", found["all"])]
    lines += ["", "| gate | refused |", "|---|---|"]
    lines += [f"| `{g}` | {n} |" for g, n in sorted(found["by_gate"].items(), key=lambda x: -x[1])]
    lines += ["", "Survivors, of which a person says whether they differ anywhere in the domain:"]
    for row in found["survivors"]:
        lines += [
            "", f"{row['program']}, `{row['kernel']}`, {row['operator']}, line {row['line']}:", "",
            "```diff", f"- {row['before']}", f"+ {row['after']}", "```",
        ]  # fmt: skip
    lines += ["", "Left out or cut:"]
    lines += [
        f"- {row['program']} ({row['kind']}): {row.get('why', 'out of time')}"
        for row in found["left_out"]
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, one: dict[str, Any]) -> str:
    share = "" if one["score"] is None else f"{100 * one['score']:.1f} %"
    cells = [one[key] for key in ("mutants", "equivalent", "refused", "survived")]
    return f"| {name} | {' | '.join(map(str, cells))} | {share} |"


def main() -> int:
    """Judge what was asked for; 1 where the judge refused a kernel of its own author."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kernels", type=int, default=25)
    parser.add_argument("--mutants", type=int, default=500, help="of all kernels together")
    parser.add_argument("--aa", type=int, default=100, help="programs at most")
    parser.add_argument("--programs", type=Path, nargs="*", default=[])
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of programs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program-seconds", type=float, default=240.0)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of one run")
    parser.add_argument("--out", type=Path, default=Path("runs/mutation"))
    for word in ("--one", "--name", "--argv", "--nvcc"):  # of the process of one program
        parser.add_argument(word, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        judge_program(options)
        return 0
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    sources = [*own_programs(), *(p for f in options.programs for p in programs_in(f.resolve()))]
    if options.only:
        sources = [x for x in sources if any(part in x.name for part in options.only)]
    running = Running(options)
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(running.one, sources[: max(options.aa, options.kernels)]))
    found = summary(running.rows, f"python {shlex.join(sys.argv)}")
    (options.out / "mutation.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.out / "mutation.md").write_text(markdown(found))
    print(markdown(found))
    return 1 if found["aa"]["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
