"""Verify: what an attempt teaches the next one."""

from __future__ import annotations

from cudaops.domain.judgement import Judgement
from cudaops.domain.rewrite import Rewrite


def lesson_of(rewrite: Rewrite, judgement: Judgement) -> str:
    """One line for the anti-context: what was tried and why it must not be tried again."""
    values = ", ".join(f"{name}={value}" for name, value in rewrite.values().items())
    tried = f"{rewrite.title} ({values})" if values else rewrite.title
    if judgement.outcome == "rejected":
        return f"do not repeat {tried}: {judgement.reason}"
    return f"{tried} works: {judgement.reason}; build on it"
