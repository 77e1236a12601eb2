"""What nodes use but state does not hold: services, given to the graph at each invocation."""

from __future__ import annotations

from dataclasses import dataclass

from cudaops.agents.tools import Toolbox
from cudaops.domain.run import RunOptions
from cudaops.graph.events import EventLog
from cudaops.sandbox.workbench import Workbench


@dataclass(frozen=True, kw_only=True)
class Context:
    """Services of one run."""

    options: RunOptions
    bench: Workbench
    toolbox: Toolbox
    events: EventLog
    max_trials: int = 14
    """Configurations the tuner may try for one rewrite."""
    max_tune_seconds: float = 25.0
    """Time the tuner may take for one rewrite."""
