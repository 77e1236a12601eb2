"""What nodes use but state does not hold: services, given to the graph at each invocation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cudaops.agents.developer import Developer
from cudaops.agents.tools import Toolbox
from cudaops.domain.run import AgentName, RunOptions
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
    intake_seconds: float = 0.0
    """What reading the program and running it once took."""
    interrupted: Callable[[], bool] = lambda: False
    """Whether the run was asked to stop: no further stage begins then."""
    max_trials: int = 10
    """Configurations the tuner may try for one rewrite."""
    max_tune_seconds: float = 30.0
    """Time the tuner may take for one rewrite."""

    def with_developer(self, developer: Developer | None) -> Context:
        """The same with somebody who writes."""
        return dataclasses.replace(self, developer=developer)

    def out_of_time(self, seconds_by_stage: Mapping[str, float]) -> str | None:
        """Why no further stage may begin: `--budget-minutes` are over. None while there is time.

        A run that is resumed goes on with the minutes it had left.
        """
        minutes = self.options.budget_minutes
        if minutes is None or self.minutes_left(seconds_by_stage) > 0:
            return None
        return f"the budget of {minutes:g} minutes is used up"

    def minutes_left(self, seconds_by_stage: Mapping[str, float]) -> float:
        """Minutes until `out_of_time`; infinite without a budget."""
        if self.options.budget_minutes is None:
            return float("inf")
        spent_s = self.intake_seconds + sum(seconds_by_stage.values())
        return self.options.budget_minutes - spent_s / 60.0

    def announce(self, stage: str, agent: AgentName) -> Callable[[str], None]:
        """Takes lines about what a stage is doing and makes progress events of them."""
        return lambda line: self.events.emit(stage, agent, "progress", line)
