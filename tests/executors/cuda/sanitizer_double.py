#!/usr/bin/env python3
"""A double of compute-sanitizer's command line, for machines without a GPU.

Like the real one it parses its options, starts the program behind them, writes its findings to
`--log-file` and ends with `--error-exitcode` where it found some. What it finds is not found but
given, in environment variables that the program under it gets as well:

    DOUBLE_LOG_<tool>   file whose contents become the log; absent: a log without findings
    DOUBLE_HANGS        not empty: the program is never waited for, and a child ignores hang-ups
    DOUBLE_OLD          not empty: knows no `--initcheck-address-space`, like versions before 2025
    DOUBLE_SILENT       not empty: no log at all
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

VERSION = "NVIDIA (R) Compute Sanitizer\nVersion 2026.4.0.0 (build 1) (double)"


def main() -> int:
    if "--version" in sys.argv:
        sys.stdout.write(VERSION + "\n")
        return 0
    parser = argparse.ArgumentParser(prog="compute-sanitizer", allow_abbrev=False)
    for option in (
        "log-file",
        "error-exitcode",
        "print-limit",
        "show-backtrace",
        "demangle",
        "target-processes",
        "padding",
        "report-api-errors",
        "racecheck-report",
    ):
        parser.add_argument(f"--{option}")
    parser.add_argument("--tool", choices=("memcheck", "racecheck", "synccheck", "initcheck"))
    if not os.environ.get("DOUBLE_OLD"):
        parser.add_argument("--initcheck-address-space", choices=("global", "shared", "all"))
    parser.add_argument("program", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    log = pathlib.Path((given.log_file or "").replace("%%", "%"))
    if os.environ.get("DOUBLE_HANGS"):
        stray = [sys.executable, "-c", "import time; time.sleep(600)"]
        child = subprocess.Popen(stray, start_new_session=True)
        log.with_suffix(".pid").write_text(str(child.pid))
        time.sleep(600)
    done = subprocess.run(given.program, check=False)
    if os.environ.get("DOUBLE_SILENT"):
        return done.returncode
    source = os.environ.get(f"DOUBLE_LOG_{given.tool}")
    text = pathlib.Path(source).read_text() if source else clean(given.tool)
    log.write_text(text)
    none = "0 errors" in text or "(0 errors, 0 warnings)" in text
    return done.returncode or (0 if none else int(given.error_exitcode))


def clean(tool: str) -> str:
    if tool == "racecheck":
        last = "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
    else:
        last = "ERROR SUMMARY: 0 errors"
    return f"========= COMPUTE-SANITIZER\n========= {last}\n"


if __name__ == "__main__":
    sys.exit(main())
