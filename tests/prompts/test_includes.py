"""Headers that a prompt offers are those that compile where the rewrite will run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cudaops.executors.cpu.toolchain import compile_flags, find_toolchain
from cudaops.program.hygiene import ALLOWED_INCLUDES


def test_the_processor_has_all_of_them(tmp_path: Path) -> None:
    asked = [f"#if !__has_include(<{name}>)\nmissing {name}\n#endif" for name in ALLOWED_INCLUDES]
    (tmp_path / "headers.cpp").write_text("\n".join(asked) + "\n")
    command = [find_toolchain().gxx, *compile_flags("plain"), "-E", "-P", "headers.cpp"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    missing = [li.split()[1] for li in done.stdout.splitlines() if li.startswith("missing ")]
    assert missing == []
