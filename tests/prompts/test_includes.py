"""Headers that a prompt offers are those that compile where the rewrite will run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cudaops.executors.cpu.toolchain import compile_flags, find_toolchain
from cudaops.program.hygiene import ALLOWED_INCLUDES, NOT_ON_CPU
from cudaops.prompts.roles import planner_prompt
from tests.prompts import samples


def test_what_the_processor_lacks_is_what_g_plus_plus_does_not_find(tmp_path: Path) -> None:
    asked = [f"#if !__has_include(<{name}>)\nmissing {name}\n#endif" for name in ALLOWED_INCLUDES]
    (tmp_path / "headers.cpp").write_text("\n".join(asked) + "\n")
    command = [find_toolchain().gxx, *compile_flags("plain"), "-E", "-P", "headers.cpp"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    missing = [li.split()[1] for li in done.stdout.splitlines() if li.startswith("missing ")]
    assert frozenset(missing) == NOT_ON_CPU


def test_a_prompt_offers_only_what_its_executor_has() -> None:
    everywhere = planner_prompt(samples.first(), 3).system
    on_cpu = planner_prompt(
        samples.first()._replace(includes=ALLOWED_INCLUDES - NOT_ON_CPU), 3
    ).system
    for name in NOT_ON_CPU:
        assert name in everywhere
        assert name not in on_cpu
    assert "cuda_fp16.h" in on_cpu
