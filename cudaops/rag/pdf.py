"""Text of a PDF as Markdown, a section a heading of its outline, else a page.

Read in a process of its own with limits: a PDF may be made to exhaust memory or time.
"""

from __future__ import annotations

import io
import resource
import subprocess
import sys
from typing import Any

from cudaops.errors import InputError

MAX_PDF_BYTES = 64 * 2**20

MEMORY_BYTES = 2 * 2**30
"""Address space of the process that reads it."""

SECONDS = 300
"""Longest time that it takes."""


def pdf_text(name: str, data: bytes) -> str:
    """The text. Raises InputError: broken or encrypted, too much, no text."""
    command = [sys.executable, "-W", "ignore", "-m", __name__]
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{name} is refused: reading it takes over {SECONDS} s") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else f"the reader ended with {done.returncode}"
        raise InputError(f"{name} is no PDF that can be read: {why[:200]}")
    text = done.stdout.decode("utf-8", "replace")
    if not text.strip():
        raise InputError(f"{name} holds no text: its pages are pictures")
    return text


def _headings(reader: Any, outline: Any, depth: int = 0) -> list[tuple[int, str]]:
    """Page and title of each entry of an outline."""
    found: list[tuple[int, str]] = []
    for entry in outline:
        if isinstance(entry, list):
            found += _headings(reader, entry, depth + 1) if depth < 8 else []
            continue
        page = reader.get_destination_page_number(entry)
        if page is not None and page >= 0:
            found.append((page, " ".join(str(entry.title).split())))
    return found


def _markdown(reader: Any) -> str:
    headings = dict(reversed(_headings(reader, reader.outline)))
    title = ""
    parts = []
    for number, page in enumerate(reader.pages):
        title = headings.get(number, title)
        said = page.extract_text().replace("```", "'''").replace("\n#", "\n #").strip()
        if said:
            where = f"page {number + 1}"
            parts.append(f"## {f'{title}, {where}' if title else where}\n{said}\n")
    return "\n".join(parts)


def _main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    from pypdf import PdfReader

    # What a broken file makes the library raise ends this process: its last line says what.
    text = _markdown(PdfReader(io.BytesIO(sys.stdin.buffer.read())))
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
