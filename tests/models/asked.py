"""A caller with a scripted model, and waiting that takes no time."""

from __future__ import annotations

from pathlib import Path

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from cudaops.models.budget import Budget
from cudaops.models.caller import ModelCaller
from cudaops.models.clients import ModelAccess, Timeouts
from cudaops.models.failures import Backoff
from cudaops.models.journal import Journal
from cudaops.models.names import ModelName, parse_model
from cudaops.models.scripted import Scripted, ScriptedModel

NAME: ModelName = parse_model("scripted:answers.json")

DIALOGUE: tuple[BaseMessage, ...] = (SystemMessage("Rules."), HumanMessage("Write a kernel."))

LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look something up.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    },
}


class Waits:
    """Backoff without sleeping; keeps what it would have slept."""

    def __init__(self, **policy: float) -> None:
        self.slept: list[float] = []
        self.backoff = Backoff(sleep=self._sleep, random=lambda: 1.0, **policy)  # type: ignore[arg-type]

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def caller(
    *answers: Scripted,
    budget: Budget | None = None,
    journal: Path | None = None,
    waits: Waits | None = None,
    timeouts: Timeouts | None = None,
    repeat_last: bool = False,
) -> tuple[ModelCaller, ScriptedModel]:
    """A caller and the model behind it."""
    model = ScriptedModel(answers=answers, repeat_last=repeat_last)
    made = ModelCaller(
        model,
        NAME,
        ModelAccess(timeouts=timeouts or Timeouts()),
        budget=budget,
        journal=Journal(journal) if journal else None,
        backoff=(waits or Waits()).backoff,
    )
    return made, model
