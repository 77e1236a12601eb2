"""Hostile programs, and the levels this machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.judgement import IsolationLevel
from cudaops.executors.isolation import level as levels
from cudaops.executors.isolation.level import level_of, probe
from tests.executors.isolation import hostile
from tests.executors.isolation.hostile import LEVELS


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return hostile.build_all(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(autouse=True)
def _as_if_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier test, whose program found no GPU, has weakened the phase for this process."""
    monkeypatch.setattr(levels, "_IN_FORCE", levels._InForce())


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> IsolationLevel:
    wanted: IsolationLevel = request.param
    if level_of("program", wanted) != wanted:
        pytest.skip(f"this machine reaches {probe().level}: {'; '.join(probe().notes)}")
    return wanted
