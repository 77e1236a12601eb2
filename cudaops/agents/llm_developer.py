"""The developer that is a language model: plans, writes, mends, and says what was learnt.

Roles are prompts (`cudaops.prompts.roles`) and the functions here; what a model answers is text
until it was read (`cudaops.prompts.answers`), compiled and judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from langchain_core.messages import HumanMessage

from cudaops.agents.conversation import Conversation, Said, opening
from cudaops.agents.developer import RunView, Written
from cudaops.agents.tools import Toolbox, ToolFailed
from cudaops.domain.hypothesis import Hypothesis
from cudaops.domain.judgement import Attempt
from cudaops.domain.model_use import ModelRole as Role
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import PlanError
from cudaops.mcp_servers.programs import StrippedProgram
from cudaops.mcp_servers.sandbox import CompileReport
from cudaops.models.journal import Journal
from cudaops.program.fingerprint import near_duplicate
from cudaops.program.plans import make_rewrite
from cudaops.prompts.answers import Unusable, read_hypotheses, read_lesson, read_rewrite
from cudaops.prompts.briefing import Briefing
from cudaops.prompts.roles import (
    Prompt,
    coder_prompt,
    fixer_prompt,
    planner_prompt,
    reask,
    reflector_prompt,
)

REASKS = 2
"""How often an answer that cannot be used is asked for again. Chosen: a model that misses the form
three times will miss it a fourth time; every try is paid for."""
FIXES = 2
"""How often one rewrite that does not compile is mended. Chosen: as `REASKS`."""


class Draft(NamedTuple):
    """A usable answer, read."""

    source: str
    title: str
    why: str


@dataclass(frozen=True, kw_only=True)
class ModelDeveloper:
    """Implements `cudaops.agents.developer.Developer` with one chat model."""

    model: str
    """Name as the user gave it; `Rewrite.proposer` is `llm:` and this."""
    conversation: Conversation
    toolbox: Toolbox
    journal: Journal
    brief: Callable[[RunView], Briefing]
    """What prompts are made of, with all that does not change in a run filled in."""
    say: Callable[[str], None]

    async def plan(self, view: RunView, wanted: int, scope: str) -> tuple[Hypothesis, ...]:
        """Hypotheses; none where no usable answer came. Raises ModelUnavailable."""
        prompt = planner_prompt(self.brief(view), wanted)
        said = await self._start("planner", prompt, scope)
        for tries in range(REASKS + 1):
            found = read_hypotheses(said.text, wanted)
            if not isinstance(found, Unusable):
                return found
            self.say(f"the planner's answer cannot be used: {found.detail}")
            if tries < REASKS:
                said = await self._again("planner", said, found.reask, scope)
        return ()

    async def write(
        self,
        view: RunView,
        hypothesis: Hypothesis,
        scope: str,
        parents: tuple[Rewrite, ...] = (),
    ) -> Written:
        """One rewrite, compiled and mended within bounds. Raises ModelUnavailable."""
        self.say(f"the model writes {hypothesis.title}: {hypothesis.why}")
        briefing = self.brief(view)
        said = await self._start("coder", coder_prompt(briefing, hypothesis, parents), scope)
        draft = await self._read(view, said, scope, "coder")
        if isinstance(draft, str):
            return Written(None, hypothesis.family, draft)
        return await self._mended(view, briefing, hypothesis, draft, scope)

    async def mend(
        self, view: RunView, hypothesis: Hypothesis, rewrite: Rewrite, gate: str, scope: str
    ) -> Written:
        """The same rewrite without what a gate refused it for. Raises ModelUnavailable."""
        self.say(f"the model mends {rewrite.title}: {gate}")
        briefing = self.brief(view)
        prompt = fixer_prompt(briefing, hypothesis, rewrite.source, gate, "")
        said = await self._start("fixer", prompt, scope)
        draft = await self._read(view, said, scope, "fixer")
        if isinstance(draft, str):
            return Written(None, hypothesis.family, draft)
        return await self._mended(view, briefing, hypothesis, draft, scope)

    async def reflect(self, view: RunView, attempt: Attempt, scope: str) -> str:
        """One line on what an attempt taught; empty where the model has none. Raises
        ModelUnavailable."""
        prompt = reflector_prompt(self.brief(view), attempt)
        said = await self._start("reflector", prompt, scope)
        return read_lesson(said.text)

    async def _start(self, role: Role, prompt: Prompt, scope: str) -> Said:
        messages = opening(prompt.system, prompt.user)
        return await self.conversation.ask(role, messages, scope, with_tools=role == "coder")

    async def _again(self, role: Role, said: Said, complaint: str, scope: str) -> Said:
        messages = (*said.messages, HumanMessage(reask(complaint)))
        return await self.conversation.ask(role, messages, scope)

    async def _read(self, view: RunView, said: Said, scope: str, role: Role) -> Draft | str:
        """The answer as a draft, asked for again where it cannot be used; else why not."""
        complaint = ""
        for tries in range(REASKS + 1):
            draft = await self._drafted(view, said.text)
            if isinstance(draft, Draft):
                return draft
            complaint, detail = draft
            self.say(f"the {role}'s answer cannot be used: {detail}")
            if tries < REASKS:
                said = await self._again(role, said, complaint, scope)
        return f"no usable answer in {REASKS + 1} tries: {detail}"

    async def _drafted(self, view: RunView, text: str) -> Draft | tuple[str, str]:
        """A draft, or what to ask for again and why in a line."""
        allow = self.brief(view).allow_libraries
        found = read_rewrite(text, kernel=view.kernel, allow_libraries=allow)
        if isinstance(found, Unusable):
            if found.kind != "whole_program":
                return found.reask, found.detail
            try:
                stripped = await self.toolbox.call(
                    "sandbox", "strip_program", StrippedProgram, {"text": found.program}
                )
            except ToolFailed as refusal:
                return found.reask, f"a whole program of which nothing can be taken: {refusal}"
            self.say("the answer is a whole program: its kernels are taken, its host code is not")
            draft = Draft(stripped.source, "kernels of a whole program", found.detail)
        else:
            draft = Draft(found.source, found.title, found.why)
        twin = near_duplicate(draft.source, view.sources)
        if twin is not None:
            reason = f"this is {twin.label} again but for names, comments or layout"
            return (
                f"{reason}. It was judged already. Write something that differs in what it does.",
                reason,
            )
        return draft

    async def _mended(
        self, view: RunView, briefing: Briefing, hypothesis: Hypothesis, draft: Draft, scope: str
    ) -> Written:
        """The draft once it compiles, or as it is after the last fix."""
        report = await self._compile(scope, draft.source)
        for _ in range(FIXES):
            if report.ok:
                break
            where = f"{report.location}: " if report.location else ""
            self.say(f"it does not compile: {where}{report.message}")
            prompt = fixer_prompt(
                briefing, hypothesis, draft.source, where + report.message, report.log
            )
            said = await self._start("fixer", prompt, scope)
            fixed = await self._read(view, said, scope, "fixer")
            if isinstance(fixed, str):
                break
            draft = fixed
            report = await self._compile(scope, draft.source)
        problem = None if report.ok else report.message
        try:
            rewrite = self._rewrite(draft, hypothesis)
        except PlanError as error:
            return Written(None, hypothesis.family, f"launch plan: {error}")
        return Written(rewrite, hypothesis.family, problem)

    def _rewrite(self, draft: Draft, hypothesis: Hypothesis) -> Rewrite:
        return make_rewrite(
            draft.source,
            f"llm:{self.model}",
            draft.title or hypothesis.title,
            draft.why or hypothesis.why,
        )

    async def _compile(self, scope: str, source: str) -> CompileReport:
        """Journalled: the log goes into the next prompt, which must be the same on a resume."""
        arguments = {"source": source}
        known = self.journal.recall_tool(scope, "compile_rewrite:report", arguments)
        if known is not None:
            return CompileReport.model_validate_json(known)
        try:
            report = await self.toolbox.call("sandbox", "compile_rewrite", CompileReport, arguments)
        except ToolFailed as refusal:
            report = CompileReport(ok=False, message=str(refusal))
        self.journal.record_tool(
            scope, "compile_rewrite:report", arguments, report.model_dump_json()
        )
        return report
