"""Compiles with NVRTC, one request a line: a process of its own, since sources are not trusted.

    in:  {"source": TEXT, "options": [..], "output": PATH, "seconds": LIMIT}
    out: {"ok": true, "log": TEXT}  |  {"ok": false, "log": TEXT}
    first line out, before any request: {"version": "13.0"}  |  {"missing": WHY}

Imports nothing of cudaops: it starts in 0.15 s.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import IO, Any

MAX_LOG = 256 * 1024


def main() -> None:
    """Answer requests until the other side closes its end."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)  # whatever a library prints is not an answer
    try:
        from cuda.bindings import nvrtc

        failed, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as problem:
        _answer(answers, {"missing": f"{type(problem).__name__}: {problem}"[:400]})
        return
    if failed != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _answer(answers, {"missing": f"nvrtcVersion: {failed.name}"})
        return
    _answer(answers, {"version": f"{major}.{minor}"})
    # The default action ends the process even inside of the library.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, float(request["seconds"]))
        answer = _compile(nvrtc, request)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        _answer(answers, answer)


def _answer(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _compile(nvrtc: Any, request: dict[str, Any]) -> dict[str, Any]:
    success = nvrtc.nvrtcResult.NVRTC_SUCCESS
    failed, program = nvrtc.nvrtcCreateProgram(request["source"].encode(), b"unit.cu", 0, [], [])
    if failed != success:
        return {"ok": False, "log": failed.name}
    try:
        options = [option.encode() for option in request["options"]]
        (compiled,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _log(nvrtc, program)
        if compiled != success:
            return {"ok": False, "log": f"{compiled.name}\n{log}"}
        failed, size = nvrtc.nvrtcGetCUBINSize(program)
        if failed != success or size < 2:
            return {"ok": False, "log": f"no cubin: {failed.name}"}
        image = b" " * size
        (failed,) = nvrtc.nvrtcGetCUBIN(program, image)
        if failed != success:
            return {"ok": False, "log": f"no cubin: {failed.name}"}
        Path(request["output"]).write_bytes(image)
        return {"ok": True, "log": log}
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(nvrtc: Any, program: Any) -> str:
    failed, size = nvrtc.nvrtcGetProgramLogSize(program)
    if failed != nvrtc.nvrtcResult.NVRTC_SUCCESS or size < 2:
        return ""  # the end of a text alone; bytes of one character are shared by all of Python
    text = b" " * size
    nvrtc.nvrtcGetProgramLog(program, text)
    log: str = text.rstrip(b"\0").decode("utf-8", "replace")
    return log[:MAX_LOG]


if __name__ == "__main__":
    main()
