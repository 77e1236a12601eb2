"""Ctrl-C between stages: what was asked to stop begins nothing more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cudaops.graph.build import stage
from cudaops.graph.context import Context
from cudaops.graph.state import State


def test_no_stage_begins_after_an_interrupt() -> None:
    begun: list[str] = []

    async def body(state: State, context: Context) -> tuple[State, str]:
        begun.append("body")
        return {}, "done"

    node = stage("profiler", "profiler", "profiling", body)
    runtime = cast(Any, SimpleNamespace(context=SimpleNamespace(interrupted=lambda: True)))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cast(Any, node({}, runtime=runtime)))
    assert begun == []
