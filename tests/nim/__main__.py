"""`python -m tests.nim --script FILE --port N`: the server by hand."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from cudaops.errors import InputError
from cudaops.models.scripted import read_script
from tests.nim.replies import Reply
from tests.nim.server import Nim


def main() -> int:
    """Serve until interrupted."""
    options = argparse.ArgumentParser(prog="python -m tests.nim", description=__doc__)
    options.add_argument(
        "--script", type=Path, required=True, help="answers (docs/language-models.md)"
    )
    options.add_argument("--port", type=int, default=8000, help="on 127.0.0.1 (default 8000)")
    options.add_argument("--model", default="test/chat", help="model id that chats must name")
    options.add_argument("--key", help="key that requests must carry (default: none)")
    given = options.parse_args()
    try:
        script = read_script(given.script)
    except InputError as error:
        options.error(str(error))
    nim = Nim(*map(Reply.from_script, script.answers), port=given.port)
    nim.any_order, nim.repeat_last = script.order == "any", script.repeat_last
    nim.key, nim.model, nim.models = given.key, given.model, (given.model, *nim.models)
    with nim:
        sys.stdout.write(f"{nim.url} serves {nim.model}, {len(nim.replies)} replies\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stdout.write(f"{len(nim.asked)} requests, {len(nim.replies)} replies left\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
