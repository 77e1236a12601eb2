"""The `remote` executor passes the suite that every executor must pass: a service in processes of
its own, the `cpu` executor behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.sandbox.executors.remote import RemoteExecutor
from tests.sandbox.conformance import ConformanceSuite
from tests.service.remote_service import RemoteService


@pytest.fixture
def executor(remote_service: RemoteService, cache: Path) -> Iterator[RemoteExecutor]:
    made = remote_service.executor(cache / "remote")
    yield made
    made.close()


@pytest.mark.deep
class TestRemote(ConformanceSuite):
    """See `conformance.py`."""
