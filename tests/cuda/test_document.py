"""The reference pages are what the tables say today."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.cuda.devices import DEVICES
from cudaops.cuda.document import PAGES, main

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_page_is_current(name: str) -> None:
    written = (DOCS / f"{name}.md").read_text("utf-8")
    assert written == PAGES[name](), f"python -m cudaops.cuda.document {name} > docs/{name}.md"


@pytest.mark.parametrize("name", PAGES)
def test_page_is_what_the_command_writes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 0
    assert capsys.readouterr().out == PAGES[name]()


def test_the_command_says_what_it_wants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err == "name one page: metrics, verdicts\n"


def test_the_guide_to_devices_names_what_is_there() -> None:
    guide = (DOCS / "adding-a-device.md").read_text("utf-8")
    for name in ("DEFAULT_DEVICE_BY_ARCH", "PUBLISHED_TFLOPS", "sm_clock_kind", "arch_source"):
        assert name in guide
    assert all(device.source for device in DEVICES.values())
