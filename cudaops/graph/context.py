"""What nodes use but state does not hold: services, given to the graph at each invocation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from cudaops.agents.developer import Developer
from cudaops.agents.tools import Toolbox
from cudaops.domain.run import RunOptions
from cudaops.graph.events import EventLog
from cudaops.memory.run_memory import RunMemory
from cudaops.sandbox.workbench import Workbench


@dataclass(frozen=True, kw_only=True)
class Context:
    """Services of one run."""

    options: RunOptions
    bench: Workbench
    toolbox: Toolbox
    events: EventLog
    developer: Developer | None = None
    """Who writes candidates beside the recipes; None without a model."""
    memory: RunMemory | None = None
    """What earlier runs learnt; None where nobody looks."""
    deadline: float = float("inf")
    """By `time.monotonic`: nothing further begins after it. Infinite without a budget."""
    interrupted: Callable[[], bool] = lambda: False
    """Whether the run was asked to stop: no further stage begins then."""
    max_tune_seconds: float = 30.0
    """Time the tuner may take for one rewrite."""

    def out_of_time(self) -> str | None:
        """Why no further stage may begin: `--budget-minutes` are over. None while there is time."""
        if time.monotonic() < self.deadline:
            return None
        return f"the budget of {self.options.budget_minutes:g} minutes is used up"
