"""The model that proposes in one run: who it is, what it may cost, where its calls are kept, and
what its prompts are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from cudaops.agents.developer import RunView
from cudaops.agents.llm_developer import TOOL_CALLS, Conversation, ModelDeveloper
from cudaops.agents.tools import Toolbox
from cudaops.cuda.devices import device
from cudaops.domain.model_use import ModelUse, Price
from cudaops.domain.run import AccessSummary, RunOptions
from cudaops.errors import ModelUnavailable, PrerequisiteError
from cudaops.graph.folder import write_whole
from cudaops.memory.run_memory import MemorySnapshot
from cudaops.models.budget import Budget
from cudaops.models.caller import ModelCaller, connect
from cudaops.models.clients import ModelAccess
from cudaops.models.failures import Backoff
from cudaops.models.journal import Journal
from cudaops.models.names import ModelName, Provider, parse_model
from cudaops.models.prices import known_price, parse_price, require_price, summary
from cudaops.models.scripted import read_script
from cudaops.program.hygiene import ALLOWED_INCLUDES
from cudaops.program.whole_program import standing_beside
from cudaops.prompts.exemplars import exemplar_for
from cudaops.prompts.expert_notes import bearing, catalogue
from cudaops.prompts.hints import hints_for
from cudaops.prompts.prompt import count_tokens
from cudaops.prompts.roles import Briefing, Judging
from cudaops.recipes.registry import propose
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings
from cudaops.transformations.registry import TRANSFORMATIONS

CALLS = Path("state", "calls")
"""Where a run folder keeps every call of its model."""
EXEMPLAR_TOKENS = 1500
"""Longest recipe shown as the example of a rewrite. Chosen: a fifth of the 8,000 tokens that a
whole prompt may have; a longer one gives way to the short example for the verdict."""
_LOST = "its calls are repeated, and its tokens are not counted"


class Development(NamedTuple):
    """The developer of a run, or why recipes alone propose."""

    developer: ModelDeveloper | None
    caller: ModelCaller | None
    notice: str | None = None
    """Why no model is asked although one was wanted; None where none was."""
    spent: ModelUse | None = None
    """What was asked before the run was resumed with no model to ask."""
    damaged: tuple[str, ...] = ()
    """Of a resumed run: what of its calls cannot be read any more, a line each."""

    def use(self, fell_back: str | None) -> ModelUse | None:
        """What was asked of the model so far; None where none was wanted."""
        return self.spent if self.caller is None else self.caller.use(fell_back)


def check_model(model: str, options: RunOptions, settings: Settings) -> None:
    """Raise InputError before anything runs where the model's name, address or price is wrong."""
    name = _named(model, options)
    _price(name, access_of(settings), options, settings)
    if name.provider == "scripted":
        read_script(Path(name.model))


def develop(
    options: RunOptions,
    settings: Settings,
    bench: Workbench,
    toolbox: Toolbox,
    snapshot: MemorySnapshot,
    deadline: float,
    say: Callable[[str], None],
) -> Development:
    """Open no connection; a model that cannot be asked at all is a notice, not an error.

    Raises InputError where the model's name, its script or its price is wrong, SandboxUnavailable
    where the calls of a resumed run cannot be looked into.
    """
    if options.optimizer != "llm" or options.model is None:
        return Development(None, None)
    name, access = _named(options.model, options), access_of(settings)
    price = _price(name, access, options, settings)
    journal = Journal(Path(options.out) / CALLS, access.secrets)
    damaged = tuple(f"{CALLS}/{line}; {_LOST}" for line in journal.damaged)
    try:
        caller = open_caller(options, settings, journal, deadline, say)
    except (ModelUnavailable, PrerequisiteError) as error:
        notice = f"no model is used: {error.problem} ({error.remedy}); recipes propose"
        spent = None
        if journal.calls:
            spent = summary(journal.calls, model=name.text, price=price, fell_back=notice)
        return Development(None, None, notice, spent, damaged)
    developer = ModelDeveloper(
        model=name.text,
        conversation=Conversation(caller, toolbox, journal, say),
        toolbox=toolbox,
        journal=journal,
        brief=brief_with(options, bench, snapshot),
        beside=partial(standing_beside, bench.program),
        say=say,
    )
    return Development(developer, caller, damaged=damaged)


def open_caller(
    options: RunOptions,
    settings: Settings,
    journal: Journal,
    deadline: float,
    say: Callable[[str], None],
) -> ModelCaller:
    """The model of the options with the run's budget. Opens no connection.

    Raises InputError where its name, script or price is wrong, ModelUnavailable and
    PrerequisiteError where it cannot be asked at all.
    """
    assert options.model is not None
    name, access = _named(options.model, options), access_of(settings)
    budget = Budget(
        max_cost_usd=options.max_cost_usd,
        max_tokens=options.max_tokens,
        deadline=deadline,
        price=_price(name, access, options, settings),
    )
    return connect(name, access, budget=budget, journal=journal, backoff=Backoff(announce=say))


def _named(model: str, options: RunOptions) -> ModelName:
    """The model as it was called; a script's path counts from where the run was started.

    Records and patches travel: of an absolute path they get the file's name alone.
    """
    name = parse_model(model)
    if name.provider != "scripted":
        return name
    path = Path(options.working_folder) / name.model
    shown = f"scripted:{path.name}" if Path(name.model).is_absolute() else name.text
    return name.model_copy(update={"model": str(path), "text": shown})


def access_of(settings: Settings) -> ModelAccess:
    """Keys and addresses as the environment gives them."""
    keys: dict[Provider, SecretStr | None] = {
        "openai": settings.openai_api_key,
        "anthropic": settings.anthropic_api_key,
        "google_genai": settings.google_api_key,
    }
    nvidia = settings.nvidia_api_key
    return ModelAccess(
        nvidia_api_key=nvidia.get_secret_value() if nvidia else None,
        nvidia_base_url=settings.nvidia_base_url,
        base_url=settings.model_url,
        api_keys={who: key.get_secret_value() for who, key in keys.items() if key},
    )


def _price(
    name: ModelName, access: ModelAccess, options: RunOptions, settings: Settings
) -> Price | None:
    given = parse_price(settings.model_price) if settings.model_price else None
    own = access.own_server(name.provider)
    if options.max_cost_usd is not None:
        return require_price(name, given, own_server=own)
    return given or known_price(name, own_server=own)


def brief_with(
    options: RunOptions, bench: Workbench, snapshot: MemorySnapshot
) -> Callable[[RunView], Briefing]:
    """A function from the run's state to a Briefing whose stable parts never change in a run."""
    kept = Path(options.out) / "state" / "exemplar.cu"
    memory_text = snapshot.memory_text(count=count_tokens)
    patterns_text = snapshot.patterns_text(count=count_tokens)

    def judging() -> Judging:
        times = tuple((b.workload.id, b.time.median_us, b.share) for b in bench.baseline_times())
        runs = tuple(one.run for one in bench.captured.runs)
        return Judging(bench.executor.time_source, runs, times, options.policy)

    known: list[Judging] = []

    def brief(view: RunView) -> Briefing:
        notes = bearing(view.verdict, view.profile)
        if not known:  # taken once, when the first question is written
            known.append(judging())
        return Briefing(
            program=view.program,
            kernel=view.kernel,
            workloads=view.workloads,
            instances=tuple(dict.fromkeys(w.callee for w in bench.captured.workloads)),
            elsewhere=tuple(
                w for w in bench.captured.workloads if w.is_timed and w.callee != bench.callee
            ),
            device=device(bench.executor.device),
            accesses=bench.accesses,
            notes_catalogue=catalogue(),
            transformations=tuple(one.name for one in TRANSFORMATIONS),
            judging=known[0],
            values=bench.values,
            exemplar=_exemplar(view, bench.accesses, kept),
            memory_text=memory_text,
            patterns_text=patterns_text,
            allow_libraries=options.policy.allow_libraries,
            allow_ptx=bench.policy.allow_ptx,
            authors_ptx=bench.authors_ptx,
            allow_precision=options.policy.allow_precision,
            includes=ALLOWED_INCLUDES,
            tool_calls=TOOL_CALLS,
            profile=view.profile,
            verdict=view.verdict,
            research=view.research,
            notes=(
                *((note.id, note.text) for note in notes),
                *hints_for(bench.program, bench.kernel),
            ),
            incumbent=view.incumbent,
            attempts=view.attempts,
            explored=view.explored,
            bar=view.bar,
            author=view.author,
            refused=view.refused,
            waiting=view.waiting,
        )

    return brief


def _exemplar(view: RunView, accesses: Sequence[AccessSummary], kept: Path) -> str:
    """The example of the run, chosen at its first prompt and found again after a kill."""
    if kept.exists():
        return kept.read_text("utf-8")
    text = _nearest(view, accesses)
    write_whole(kept, text)
    return text


def _nearest(view: RunView, accesses: Sequence[AccessSummary]) -> str:
    """What the recipe that leads against the verdict writes for this very kernel, where that is
    short; else the example for the verdict, if the kernel is of its kind."""
    written = propose(view.program, view.kernel, view.workloads, view.verdict, relieving_only=True)
    for rewrite in written[:1]:
        if count_tokens(rewrite.source) <= EXEMPLAR_TOKENS:
            return rewrite.source
    nearest = exemplar_for(view.verdict, accesses)
    return nearest.text if nearest is not None else ""
