"""Gate `preprocessed`: the candidate's own lines as each compiler that builds it sees them.

The same files, flags and headers as for the build, with `-E` in place of the output. g++ is asked
twice, with the flags of the build that is timed and of the one that is checked: a text that differs
between the two knows when it is being checked. nvcc is asked wherever it is, since whoever uses the
result compiles it with nvcc; what g++ makes of the same text must be the same words. Where there is
no nvcc to compare with, the text may ask in its conditions for nothing but its own names.

Of a device-side library (`--allow-libraries`) only what its macros put into the candidate's lines
is looked at: its own text stands in its own files. What its functions do is for the `object` gate
to see in the PTX; where there is no nvcc, nobody sees it, and the candidate is quarantined.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from cudaops.cuda.nvcc_line import folders_outside, nvcc_words, preprocessor_words
from cudaops.domain.base import Dim3
from cudaops.domain.execution import Unit
from cudaops.domain.judgement import Gate
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import EnvironmentFailure, PlanError, PrerequisiteError
from cudaops.executors.base import Executor
from cudaops.executors.cpu import build as cpu_build
from cudaops.executors.cpu.toolchain import (
    Build,
    code_flags,
    compile_flags,
    compiling,
    find_toolchain,
    source_digest,
)
from cudaops.executors.cuda import source as gpu_source
from cudaops.executors.cuda.toolchain import nvcc_for, nvcc_version, require_nvcc
from cudaops.executors.process import run_bounded
from cudaops.program.candidate import unit_candidate
from cudaops.program.clusters import kernel_clusters
from cudaops.program.hygiene import check_preprocessed
from cudaops.program.hygiene_directives import foreign_conditions, library_headers
from cudaops.program.hygiene_preprocessed import (
    CandidateText,
    NotTheCandidate,
    candidate_part,
    with_plain_words,
)
from cudaops.program.lexing import apply_edits, byte_text, lex, line_of
from cudaops.program.ptx_asm import asm_edits
from cudaops.program.reroute import device_view_files
from cudaops.sandbox.workbench import Workbench
from cudaops.storage import TEMPORARY, Facts, entry_of, make_once, raise_if_full

FORMAT = 1
"""Of what is kept of a text."""
TIMEOUT_S = 60.0
"""0.04 s by g++, 0.08 to 0.2 s by nvcc (13.0.88, 2 cores, 2026-11-20)."""
MAX_OUTPUT_BYTES = 64 * 1024 * 1024
"""A unit with cooperative_groups.h makes 2 MB."""
CODE_FLAGS = ("-O3", "-std=c++17", "-w")
"""Those of `gpu.build.FINAL_FLAGS` on which the meaning of a text depends."""


class TextView(NamedTuple):
    """A candidate's text as one compiler sees it."""

    compiler: str
    candidate: CandidateText


class NotPreprocessed(Exception):
    """There is no text to look at; says why in one line."""


class PreprocessorRefused(NotPreprocessed):
    """The preprocessor does not take the text: a header is missing, a condition is none."""


class PreprocessedText(NamedTuple):
    """The gate, and what the certificate keeps of the text."""

    gate: Gate
    sha256: str
    """Of the candidate's lines by the compiler that builds what is judged; empty without them."""


def preprocessed_gate(bench: Workbench, rewrite: Rewrite) -> PreprocessedText:
    """Preprocess the rewrite in its unit and look at what comes out. Fails where that fails."""
    started = time.monotonic()
    unit = bench.unit(bench.workloads[0], rewrite)
    try:
        views = views_of(bench.executor, unit, bench.sm_arch)
        other = _other_for_nvcc(bench.executor, unit, views)
    except (NotPreprocessed, EnvironmentFailure) as problem:
        gate = Gate(
            name="preprocessed",
            passed=False,
            summary=_missing_library(bench, rewrite, problem) or f"cannot be inspected: {problem}",
            seconds=time.monotonic() - started,
        )
        return PreprocessedText(gate, "")
    gate = _judged(bench, unit, views, other, _libraries(rewrite))
    text = views[0].candidate.text
    return PreprocessedText(
        gate.model_copy(update={"seconds": time.monotonic() - started}),
        hashlib.sha256(text.encode("utf-8")).hexdigest(),
    )


def text_by_gxx(unit: Unit, rewrite: Rewrite, cache: Path) -> CandidateText:
    """The candidate's lines as g++ compiles them.

    Raises NotPreprocessed, PrerequisiteError, SandboxUnavailable.
    """
    return _text(_by_gxx(unit, "plain"), rewrite, cache)


def views_of(executor: Executor, unit: Unit, sm_arch: str) -> list[TextView]:
    """First by the compiler of what is judged, then by the others that build it.

    Raises NotPreprocessed, PrerequisiteError, SandboxUnavailable.
    """
    rewrite = unit.rewrite
    if rewrite is None:
        raise NotPreprocessed("it is the baseline itself")

    def by_gxx(build: Build) -> CandidateText:
        return _text(_by_gxx(unit, build), rewrite, executor.cache)

    def by_nvcc() -> CandidateText:
        return _text(_by_nvcc(unit, sm_arch), rewrite, executor.cache)

    if executor.name == "cuda":
        views = [TextView("nvcc", by_nvcc())]
        try:  # the checker on the processor builds it too, where the processor has its headers
            return [
                *views,
                TextView("g++", by_gxx("plain")),
                TextView("g++ (checked)", by_gxx("checked")),
            ]
        except (PreprocessorRefused, PrerequisiteError):
            return views
    views = [TextView("g++", by_gxx("plain")), TextView("g++ (checked)", by_gxx("checked"))]
    return views if nvcc_for(unit.program) is None else [*views, TextView("nvcc", by_nvcc())]


class _Preprocessing(NamedTuple):
    """What one compiler is asked for."""

    compiler: str
    version: str
    """Of everything that is not in `files`: the compiler and its headers, or ours."""
    flags: tuple[str, ...]
    """Of the command, those that change the text."""
    command: tuple[str, ...]
    files: dict[str, str]
    reads: tuple[Path, ...]
    """Folders of headers outside of the program."""


def _text(asked: _Preprocessing, rewrite: Rewrite, cache: Path) -> CandidateText:
    """The candidate's lines of the output, made once for the same text and tools."""
    files = {
        path: with_plain_words(text) if path == cpu_build.CANDIDATE else text
        for path, text in asked.files.items()
    }
    content = (asked.version, asked.flags, sorted(files.items()), rewrite.source)
    entry = entry_of(cache, "text", FORMAT, *content)

    def make(folder: Path) -> Facts:
        output = _run(asked, folder)
        try:
            found = candidate_part(output, cpu_build.CANDIDATE, rewrite.source)
        except NotTheCandidate as problem:
            raise NotPreprocessed(str(problem)) from problem
        return found._asdict()

    facts = make_once(entry, files, make).facts
    return CandidateText(str(facts["text"]), tuple(int(line) for line in facts["lines"]))


def _by_gxx(unit: Unit, build: Build) -> _Preprocessing:
    files = cpu_build.unit_source(unit).files
    ours = ("-include", "cudaops/cuda.h", "-include", "cudaops/entry.h")
    options = unit.program.code_options
    language = (*preprocessor_words(options), *ours, "-x", "c++", "-E", cpu_build.MAIN)
    command = (find_toolchain().gxx, *compile_flags(build), *language)
    flags = (*code_flags(build), *language)
    reads = folders_outside(options)
    return _Preprocessing("g++", source_digest(), flags, command, files, reads)


def _by_nvcc(unit: Unit, sm_arch: str) -> _Preprocessing:
    source, nvcc = gpu_source.unit_source(unit), require_nvcc()
    arch = gpu_source.target_arch(gpu_source.unit_texts(unit), sm_arch)
    options = unit.program.code_options
    flags = (*CODE_FLAGS, *nvcc_words(options), f"-arch={arch}", "-E", source.main)
    command, reads = (str(nvcc), *flags), folders_outside(options)
    return _Preprocessing("nvcc", nvcc_version(nvcc), flags, command, source.files, reads)


def _run(asked: _Preprocessing, folder: Path) -> str:
    """Raises NotPreprocessed where the preprocessor refuses, writes too much or does not end."""
    compiler = asked.compiler
    done = run_bounded(
        asked.command,
        cwd=folder,
        timeout_s=TIMEOUT_S,
        env={"TMPDIR": str(folder / TEMPORARY)},
        max_output_bytes=MAX_OUTPUT_BYTES,
        confine=compiling(folder, asked.reads),
    )
    if done.timed_out or done.flooded or len(done.stdout) >= MAX_OUTPUT_BYTES:
        raise NotPreprocessed(f"{compiler} -E did not finish")
    if done.exit_code != 0:
        raise_if_full(done.stderr, folder)
        lines = done.stderr.splitlines()
        first = next((line for line in lines if "error" in line), f"exit code {done.exit_code}")
        raise PreprocessorRefused(f"{compiler} -E refuses it: {first.strip()[:300]}")
    return done.stdout


def _clusters(unit: Unit) -> dict[str, Dim3]:
    """What the rewrite says of its kernels; empty where no compiler's text can be that either."""
    if unit.rewrite is None:
        return {}
    try:
        return kernel_clusters(unit.rewrite.source, unit.rewrite.values())
    except PlanError:
        return {}


def _libraries(rewrite: Rewrite) -> tuple[str, ...]:
    return library_headers(lex(byte_text(rewrite.source)))


def _missing_library(bench: Workbench, rewrite: Rewrite, problem: Exception) -> str:
    """What to do where a library is not there to compile with; empty for any other problem."""
    missing = next((name for name in _libraries(rewrite) if name in str(problem)), None)
    if missing is None or not isinstance(problem, PreprocessorRefused):
        return ""
    if bench.executor.name == "cpu":
        return (
            f"needs --executor cuda: <{missing}> is for nvcc, and kernels on the processor are "
            "compiled by g++"
        )
    return f"nvcc does not find <{missing}>: {problem}"


def _judged(
    bench: Workbench, unit: Unit, views: Sequence[TextView], other: str, libraries: Sequence[str]
) -> Gate:
    check = partial(
        check_preprocessed,
        author_words=_author_words(unit),
        allow_ptx=bench.policy.allow_ptx,
        authors=bench.authors_ptx,
        clusters=_clusters(unit),
    )
    reports = [(v.compiler, check(v.candidate)) for v in views]
    refused = [f"{who}: {line}" for who, found in reports for line in found.refused]
    if difference := _difference(views):
        refused.insert(0, difference)
    refused += [other] if other else []
    suspicious = [f"{who}: {line}" for who, found in reports for line in found.suspicious]
    if libraries and "nvcc" not in {v.compiler for v in views}:
        suspicious.append(f"<{libraries[0]}>: without nvcc the library's code is not inspected")
    numbers = {
        "texts": float(len(views)),
        "lines": float(sum(bool(line.strip()) for line in views[0].candidate.text.split("\n"))),
        "refused": float(len(refused)),
        "suspicious": float(len(suspicious)),
        "library_headers": float(len(libraries)),
    }
    if refused:
        summary = refused[0]
    elif suspicious:
        summary = f"{suspicious[0]}; check whether its result depends on it"
    else:
        names = ", ".join(v.compiler for v in views)
        summary = f"no host code behind macros or conditions, as preprocessed by {names}"
    return Gate(
        name="preprocessed",
        passed=not refused and not suspicious,
        quarantined=bool(suspicious) and not refused,
        summary=summary,
        numbers=numbers,
    )


def _difference(views: Sequence[TextView]) -> str:
    """Where the text that g++ checks is not the one that it times; empty where they are one."""
    texts = {v.compiler: v.candidate for v in views}
    if "g++" not in texts:
        return ""
    plain, checked = texts["g++"], texts["g++ (checked)"]
    if plain == checked:
        return ""
    pairs = zip(plain.text.split("\n"), checked.text.split("\n"), plain.lines, strict=False)
    at = next((line for a, b, line in pairs if a != b), plain.lines[-1])
    return f"line {at}: the preprocessed text differs in the checked build"


def _other_for_nvcc(executor: Executor, unit: Unit, views: Sequence[TextView]) -> str:
    """Where g++ and nvcc make different words of one text: what a header puts there for a library
    (`cudaops.program.hygiene_preprocessed` keeps CUDA's own) or what a condition chose.

    Raises NotPreprocessed, PrerequisiteError, SandboxUnavailable.
    """
    texts = {v.compiler: v.candidate for v in views}
    rewrite = unit.rewrite
    if rewrite is None or "g++" not in texts:
        return ""
    if "nvcc" not in texts:
        return _foreign_condition(rewrite)
    by_gxx = _by_gxx(unit, "plain")
    same = {**by_gxx.files, cpu_build.CANDIDATE: unit_candidate(unit, dialect="cuda")}
    ours = _words(_text(by_gxx._replace(files=same), rewrite, executor.cache))
    theirs = _words(texts["nvcc"])
    for (word, line), (other, at) in zip_longest(ours, theirs, fillvalue=("", 0)):
        if word != other:
            return (
                f"line {line or at}: the preprocessed text differs for nvcc: "
                f"`{other or 'its end'}` where g++ reads `{word or 'its end'}`"
            )
    return ""


def _words(candidate: CandidateText) -> list[tuple[str, int]]:
    """Every token with its line in the rewrite; an asm statement, which a macro of the author's may
    have put there, as the C++ that stands for it where g++ compiles."""
    lexed = lex(byte_text(candidate.text))
    if edits := asm_edits(lexed):
        lexed = lex(apply_edits(lexed.text, edits))
    return [(t.text, candidate.lines[line_of(lexed.text, t.start) - 1]) for t in lexed.tokens]


def _foreign_condition(rewrite: Rewrite) -> str:
    """A condition on what the text does not define itself."""
    lexed = lex(byte_text(rewrite.source))
    found = next(foreign_conditions(lexed, frozenset(rewrite.values())), None)
    if found is None:
        return ""
    at, message = found
    return f"line {line_of(lexed.text, at)}: {message}, and nvcc is not installed to compare with"


def _author_words(unit: Unit) -> frozenset[str]:
    """Names in the author's own device code."""
    files = device_view_files(unit.program, dialect="cuda").values()
    return frozenset(t.text for text in files for t in lex(byte_text(text)).tokens)
