"""Macros of the author's that are called as template parameters of our headers are."""

from __future__ import annotations

import re
import string

from cudaops.executors.cpu.toolchain import INCLUDE

_TEMPLATE = re.compile(r"template *<([^>]*)>")
_NAME = re.compile(r"\b(?:typename|class|int|unsigned|size_t|bool)(?:\.\.\.)?\s+([A-Z]\w*)")
_ALSO_OF_NVCC = {"argument_types.h", "clock_reads.h", "named_kernels.h"}
"""Included by headers that are guarded."""


def test_every_header_with_templates_is_guarded_and_every_name_is_set_aside() -> None:
    aside = set(re.findall(r"#undef (\w+)", (INCLUDE / "cudaops/macros_off.h").read_text("utf-8")))
    restored = re.findall(r'pop_macro\("(\w+)"\)', (INCLUDE / "cudaops/macros_on.h").read_text())
    assert set(restored) == aside
    assert set(string.ascii_uppercase) <= aside
    for path in INCLUDE.rglob("*.h"):
        text = path.read_text("utf-8")
        templates = _TEMPLATE.findall(text)
        assert {name for one in templates for name in _NAME.findall(one)} <= aside, path
        if templates and path.name not in _ALSO_OF_NVCC:
            assert text.index("macros_off.h") < text.index("template"), path
            assert text.rstrip().endswith('macros_on.h"'), path
