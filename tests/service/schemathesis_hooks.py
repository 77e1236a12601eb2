"""Read by schemathesis itself: what JSON Schema cannot say of a request that is right."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any
from uuid import uuid4

import schemathesis

BODY = os.environ.get("TESTED_BODY", "application/json")
"""The kind of body that is tested. Of a form no schema says that a file must be text and which name
it may have, so forms are tested apart, without asking whether what is taken should have been."""
_GOOD = re.compile(r"[\x21-\x7e]{1,150}")


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Leaves the one kind of body."""
    for item in raw_schema["paths"].values():
        content = item.get("post", {}).get("requestBody", {}).get("content", {})
        for kind in [each for each in content if each != BODY]:
            del content[kind]


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """A key is sent with one request alone: with another one it is refused, and rightly."""
    for name, value in (case.headers or {}).items():
        if name.lower() == "idempotency-key" and _GOOD.fullmatch(str(value)):
            case.headers[name] = f"{value}-{uuid4().hex}"


@schemathesis.hook
def filter_body(context: Any, body: Any) -> bool:
    """No line of arguments with an open quote, and at least one run each to time and to judge: of
    a program, and of each of a batch."""
    programs = body.get("programs") if isinstance(body, dict) else None
    several = programs if isinstance(programs, list) else []
    return all(_has_usable_lines(each) for each in (body, *several))


def _has_usable_lines(program: Any) -> bool:
    lines = program.get("argument_lines") if isinstance(program, dict) else None
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return True
    try:
        roles = {line.split(":")[0].split("*")[0] for line in lines if shlex.split(line)}
    except ValueError:
        return False
    return roles not in ({"judged"}, {"timed"})
