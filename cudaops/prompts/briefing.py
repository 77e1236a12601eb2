"""Everything a prompt is made of, gathered by whoever asks a model."""

from __future__ import annotations

from typing import NamedTuple

from cudaops.cuda.devices import Device
from cudaops.domain.judgement import Attempt, Precision
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import ResearchFindings
from cudaops.domain.search import Branch
from cudaops.domain.workload import Workload
from cudaops.program.hygiene import ALLOWED_INCLUDES

MAX_WORDS = 120
"""Words around the code of an answer. Judgement: room for a reason, none for an essay; every token
of an answer is paid for."""


class Briefing(NamedTuple):
    """The state of a run as a prompt shows it.

    Fields of the first group are to stay the same for a whole run: they make the prompts' common
    beginning, which providers cache. The second group changes from call to call.
    """

    program: Program
    kernel: Kernel
    workloads: tuple[Workload, ...]
    device: Device
    notes_catalogue: str = ""
    """One line an expert note; part of every prompt."""
    exemplar: str = ""
    """A rewrite to learn the form from, chosen once for a run: `exemplars.exemplar_for` of the
    baseline's verdict, or what a recipe that applies wrote."""
    memory_text: str = ""
    """What earlier runs learnt of this kernel, as it was when the run began."""
    patterns_text: str = ""
    """What paid on other kernels, as it was when the run began."""
    allow_libraries: bool = False
    allow_precision: Precision | None = None
    """As in `Policy`."""
    includes: frozenset[str] = ALLOWED_INCLUDES
    """Headers that a rewrite may include where it will run."""
    max_words: int = MAX_WORDS
    """Words of prose that an answer may hold besides code."""

    profile: Profile | None = None
    """Of the incumbent; of the author's kernel where there is none. None: not profiled."""
    verdict: Verdict | None = None
    """On `profile`."""
    research: ResearchFindings | None = None
    notes: tuple[tuple[str, str], ...] = ()
    """Id and text of the expert notes that the verdict fired."""
    incumbent: Rewrite | None = None
    attempts: tuple[Attempt, ...] = ()
    """Everything judged so far, oldest first."""
    explored: tuple[Branch, ...] = ()
    """Branches of the search under way."""
