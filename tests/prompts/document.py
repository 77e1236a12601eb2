"""The second half of docs/prompts.md, from the prompts: `python -m tests.prompts.document`."""

from __future__ import annotations

from collections.abc import Mapping

from cudaops.prompts.prompt import Prompt, counted_by
from cudaops.prompts.roles import (
    coder_prompt,
    fixer_prompt,
    planner_prompt,
    reask,
    reasoner_prompt,
    reflector_prompt,
)
from tests.prompts import samples

PAGE = samples.ROOT / "docs" / "prompts.md"
MARK = "<!-- What follows is written by `python -m tests.prompts.document`. -->\n"
"""Above it stands what people write."""

_ABOUT = """
## What is shown

`tests/prompts/test_document.py` holds the rest of this page to the code. It is what a model gets
about `examples/naive_matmul.cu` on an NVIDIA H200: profile and verdict are those of the ncu capture
in `tests/data/ncu` (2026-11-20). The attempts, the hypothesis and the broken rewrite are made up
for this page; their times are nobody's measurement.
"""


def columns() -> dict[str, Prompt]:
    """The prompts of the size table, by heading."""
    hypothesis = samples.HYPOTHESIS
    return {
        "planner, first": planner_prompt(samples.first(), 3),
        "planner, 3 failures": planner_prompt(samples.after_failures(), 3),
        "coder, first": coder_prompt(samples.first(), hypothesis),
        "coder, 3 failures": coder_prompt(samples.after_failures(), hypothesis),
        "coder, incumbent": coder_prompt(samples.with_incumbent(), hypothesis),
        "fixer": _fixer(),
        "reflector": _reflector(),
        "reasoner": reasoner_prompt(samples.first()),
    }


def page() -> str:
    """The whole page: what people wrote, then the prompts as they are now."""
    shown = {
        "Planner, first iteration": planner_prompt(samples.first(), 3),
        "Coder, after three failures": coder_prompt(samples.after_failures(), samples.HYPOTHESIS),
        "Fixer, after a compile error": _fixer(),
        "Reasoner, with `--digest`": reasoner_prompt(samples.first()),
        "Reflector, after an attempt": _reflector(),
    }
    first = next(iter(shown.values()))
    form = next(i for i, part in enumerate(first.parts) if part.name == "answer's form")
    common = "\n\n".join(part.text for part in first.parts[:form])
    written = PAGE.read_text("utf-8").partition(MARK)[0]
    sections = [
        written + MARK + _ABOUT,
        _sizes(),
        "## What every prompt begins with\n",
        _block(common),
    ]
    for heading, prompt in shown.items():
        form_text = next(part.text for part in prompt.parts if part.name == "answer's form")
        sections += [
            f"## {heading}\n", "The system message ends with:\n", _block(form_text),
            "The user message:\n", _block(prompt.user),
        ]  # fmt: skip
    again = reask("the answer holds two ```cuda blocks; send exactly one.")
    sections += ["## Asking again\n", "In the same conversation, where an answer cannot be used:\n"]
    return "\n".join([*sections, _block(again)])


def size_table(columns: Mapping[str, Mapping[str, int]]) -> str:
    """A Markdown table of tokens: a row a part, a column a prompt, the totals last.

    `columns`: what `Prompt.sizes` gave, by the heading it is to have.
    """
    names: list[str] = []
    for sizes in columns.values():
        at = 0
        for name in sizes:  # a part that is new stands behind the one before it
            if name not in names:
                names.insert(at, name)
            at = names.index(name) + 1
    rows = [("part", *columns), ("---", *("---:" for _ in columns))]
    rows += [
        (name, *(f"{s[name]:,}" if name in s else "" for s in columns.values())) for name in names
    ]
    rows.append(("**total**", *(f"**{sum(s.values()):,}**" for s in columns.values())))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _sizes() -> str:
    table = size_table({heading: prompt.sizes() for heading, prompt in columns().items()})
    return (
        f"## Sizes\n\nTokens by {counted_by()}.\nTokenizers with larger vocabularies need fewer "
        "for code. The incumbent is the `matmul` recipe's\nrewrite, which is long: what is "
        f"optional had to make room for it.\n\n{table}\n"
    )


def _fixer() -> Prompt:
    return fixer_prompt(
        samples.after_failures(), samples.HYPOTHESIS, samples.BROKEN, samples.PROBLEM, samples.LOG
    )


def _reflector() -> Prompt:
    return reflector_prompt(samples.after_failures(), samples.FAILED[-1])


def _block(text: str) -> str:
    return f"~~~~text\n{text}\n~~~~\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
