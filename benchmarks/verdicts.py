"""Verdicts over many kernels, to be read one after the other.

    python benchmarks/verdicts.py collect PROFILES.json FOLDER_OR_CU ... [--args ARGS.json]
    python benchmarks/verdicts.py table PROFILES.json ... [--before TABLE.json] --out TABLE
    python benchmarks/verdicts.py agree PROFILES.json RUNS --out TABLE

`collect` profiles programs (`cudaops profile --executor cpu --device H200`) and adds what rules
read to PROFILES.json: an interrupted one goes on. A folder is a program of one .cu file
(`authored.py`); --args gives its command line instead, --runs a folder of runs on a GPU whose
kernels are meant. `table` diagnoses every profile again, a run's `run.json` and ncu's CSV
pages among them, and writes TABLE.md and TABLE.json: after a change of the rules that takes a
second. With --before it says which verdicts changed. `agree` sets the verdict of a modelled profile
beside that of ncu's, which a run of the same program holds (RUNS/NAME/run.json).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from authored import authored, authored_in

from cudaops.cuda.derived import DERIVED
from cudaops.cuda.devices import device
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.ncu_pages import parse_csv
from cudaops.cuda.rules import RULES
from cudaops.cuda.verdict import diagnose
from cudaops.domain.profile import Profile

TIMEOUT_S = 150


def _read() -> set[str]:
    """Raw metrics that a rule or the roofline reads."""
    conditions = [c.fact for rule in RULES for c in (*rule.conditions, *rule.unless)]
    said = [fact for rule in RULES for fact, _ in rule.also]
    inputs = [name for row in DERIVED.values() for name in row.inputs]
    counted = [
        name for name in METRICS if "_op_" in name or name.startswith(("dram__", "launch__"))
    ]
    return {name for name in (*conditions, *said, *inputs, *counted) if name in METRICS}


def _reduced(profile: Profile) -> dict[str, Any]:
    """Without the program's text."""
    kept = {name: m for name, m in profile.metrics.items() if name in _read()}
    bare = profile.model_copy(
        update={"metrics": kept, "hot_lines": (), "nvidia_rules": (), "notes": ()}
    )
    return bare.model_dump(mode="json")


def _profiled(program: Path, line: str | None, kernel: str | None, target: str) -> dict[str, Any]:
    one = authored_in(program) if program.is_dir() else authored(program)
    folder, source = one.path.parent, one.path
    argv = one.argv if line is None else shlex.split(line)
    options = ["--nvcc", one.nvcc] if one.nvcc else []
    if kernel := kernel or one.kernel:
        options += ["--kernel", kernel]
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "program"
        if program.is_dir():
            shutil.copytree(folder, place)
        else:
            place.mkdir()
            shutil.copy(source, place)
        command = [
            sys.executable, "-m", "cudaops", "profile", source.name, "--executor", "cpu",
            "--device", target, f"--timeout={TIMEOUT_S}", "--json", *options, "--", *argv,
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, cwd=place, capture_output=True, text=True, check=False,
                timeout=2 * TIMEOUT_S, env={**os.environ, "NO_COLOR": "1"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"why_not": f"no profile in {2 * TIMEOUT_S} s"}
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        why = (said or ["nothing was said"])[-1].replace(f"{place}/", "")
        return {"why_not": why[:200]}
    return _reduced(Profile.model_validate(json.loads(done.stdout)["baseline"]))


def collect(options: argparse.Namespace) -> None:
    """Adds a profile, or why there is none, for each program."""
    given = json.loads(options.args.read_text("utf-8")) if options.args else {}
    path: Path = options.profiles
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    programs = [
        p for p in options.programs if p.stem not in found and (p.suffix == ".cu" or _is_one(p))
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = {
            pool.submit(
                _profiled, p, given.get(p.name), _kernel_of(options.runs, p.stem), options.device
            ): p.stem
            for p in programs
        }
        for future in as_completed(futures):
            name = futures[future]
            found[name] = future.result()
            rows = (f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
            path.write_text("{" + ",\n".join(rows) + "}\n", "utf-8")
            print(name, found[name].get("why_not", "profiled"), flush=True)


def _kernel_of(runs: Path | None, name: str) -> str | None:
    """The kernel of a run's profile."""
    record = None if runs is None else runs / name / "run.json"
    if record is None or not record.is_file():
        return None
    profile = json.loads(record.read_text("utf-8"))["profile"]["baseline"]
    return str(profile["kernel"]) if profile else None


def _is_one(folder: Path) -> bool:
    return folder.is_dir() and len(list(folder.glob("*.cu"))) == 1


def _profiles(paths: list[Path]) -> dict[str, Profile]:
    found: dict[str, Profile] = {}
    for path in paths:
        if path.suffix == ".csv":
            launches = parse_csv(path.read_text("utf-8-sig"))
            found |= {f"{path.name} {at}": one.profile for at, one in enumerate(launches)}
            continue
        held = json.loads(path.read_text("utf-8"))
        if "run_id" in held:
            for whose in ("baseline", "best"):
                if raw := held["profile"][whose]:
                    found[f"{path.parent.name} {whose}"] = Profile.model_validate(raw)
            continue
        for name, raw in held.items():
            if "why_not" not in raw:
                found[name] = Profile.model_validate(raw)
    return found


def table(options: argparse.Namespace) -> None:
    """Writes both tables."""
    before = json.loads(options.before.read_text("utf-8")) if options.before else {}
    rows = {}
    for name, profile in sorted(_profiles(options.profiles).items()):
        verdict = diagnose(profile, device(profile.device))
        rows[name] = {
            "kernel": profile.kernel, "source": profile.source, "device": profile.device,
            "duration_us": round(profile.duration_us, 2), "subtype": verdict.subtype,
            "summary": verdict.summary, "relief": verdict.relief,
            "also": [f.subtype for f in verdict.findings[1:]],
        }  # fmt: skip
    options.out.with_suffix(".json").write_text(
        json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8"
    )
    lines = ["| program | kernel | us | verdict | advice |", "|---|---|---|---|---|"]
    for name, row in rows.items():
        was = before.get(name, {}).get("subtype", row["subtype"])
        changed = f" (before: `{was}`)" if was != row["subtype"] else ""
        cells = (
            name, f"`{row['kernel']}`", f"{row['duration_us']:,} {row['source']}",
            f"`{row['subtype']}`{changed}: {row['summary']}", row["relief"],
        )  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    options.out.with_suffix(".md").write_text("\n".join(lines) + "\n", "utf-8")
    print(f"{len(rows)} verdicts")


def agree(options: argparse.Namespace) -> None:
    """Writes the table of first causes, by ncu and by the model."""
    modelled = _profiles([options.profiles])
    lines = ["| program | kernel | us, ncu | us, model | by ncu | by the model | |", "|-" * 7 + "|"]
    same = near = compared = 0
    for name, profile in sorted(modelled.items()):
        record = options.runs / name / "run.json"
        measured = _profiles([record]).get(f"{name} baseline") if record.is_file() else None
        if measured is None or measured.source != "measured":
            continue
        if measured.kernel.partition("<")[0] != profile.kernel.partition("<")[0]:
            continue
        compared += 1
        first = diagnose(measured, device(measured.device))
        second = diagnose(profile, device(profile.device))
        as_first = first.subtype == second.subtype
        among = second.subtype in {f.subtype for f in first.findings[:2]} or first.subtype in {
            f.subtype for f in second.findings[:2]
        }
        same, near = same + as_first, near + among
        times = f"{measured.duration_us:,.2f} | {profile.duration_us:,.2f}"
        how = "" if as_first else "among two" if among else "**no**"
        lines.append(
            f"| {name} | `{profile.kernel}` | {times} | `{first.subtype}` | `{second.subtype}` | "
            f"{how} |"
        )
    options.out.with_suffix(".md").write_text("\n".join(lines) + "\n", "utf-8")
    print(f"{compared} kernels: the same first cause for {same}, among the first two for {near}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    commands = parser.add_subparsers(required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("profiles", type=Path)
    collecting.add_argument("programs", type=Path, nargs="+")
    collecting.add_argument("--args", type=Path)
    collecting.add_argument("--runs", type=Path)
    collecting.add_argument("--device", default="H200")
    collecting.add_argument("--jobs", type=int, default=2)
    collecting.set_defaults(do=collect)
    tabling = commands.add_parser("table")
    tabling.add_argument("profiles", type=Path, nargs="+")
    tabling.add_argument("--before", type=Path)
    tabling.add_argument("--out", type=Path, required=True)
    tabling.set_defaults(do=table)
    agreeing = commands.add_parser("agree")
    agreeing.add_argument("profiles", type=Path)
    agreeing.add_argument("runs", type=Path)
    agreeing.add_argument("--out", type=Path, required=True)
    agreeing.set_defaults(do=agree)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
