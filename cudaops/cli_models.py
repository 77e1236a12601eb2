"""From a command line and the settings to who proposes rewrites."""

from __future__ import annotations

from typing import Literal, NamedTuple

from cudaops.domain.search import SearchOptions
from cudaops.errors import InputError
from cudaops.settings import Settings

OptimizerChoice = Literal["auto", "recipes", "llm"]

NO_MODEL = (
    "no model is asked: neither NVIDIA_API_KEY nor --model is there; recipes propose "
    "(docs/language-models.md)"
)
"""What `auto` says where it finds no model."""


class Proposing(NamedTuple):
    """Who proposes, and within which limits."""

    optimizer: Literal["recipes", "llm"] = "recipes"
    model: str | None = None
    search: SearchOptions = SearchOptions()
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    budget_minutes: float | None = None
    use_memory: bool = True
    no_model: str | None = None
    """Why recipes alone propose although nobody declined a model."""


def choose(optimizer: OptimizerChoice, model: str | None, settings: Settings) -> Proposing:
    """The optimizer asked for. `auto`: the model where one was named or NVIDIA's can be reached.

    A model that turns out to be out of reach is no error: the run says so and recipes propose.
    Raises InputError for a name that cannot be a model's, or one given with `recipes`.
    """
    if optimizer == "recipes":
        if model is not None:
            raise InputError("--model names who proposes, and --optimizer recipes asks nobody")
        return Proposing()
    reachable = settings.nvidia_api_key or settings.nvidia_base_url
    named = model or settings.model
    if optimizer == "auto" and named is None and not reachable:
        return Proposing(no_model=NO_MODEL)
    from cudaops.models.names import DEFAULT_MODEL, parse_model

    return Proposing("llm", parse_model(named or DEFAULT_MODEL).text)
