"""What installed packages add by entry points: docs/plugins.md. Loaded when first asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, NamedTuple

from cudaops.errors import InputError

Group = Literal["devices", "rules", "gates", "recipes", "hints"]
"""An entry point's group is `cudaops.` with this behind it."""


class Plugin(NamedTuple):
    """One thing that a package adds."""

    label: str
    """Package, version and entry point, for messages."""
    value: Any

    def called(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What a function of it gives. Raises InputError, one line that names it, where it
        raises: a run without what its user installed would answer another question, and
        `cudaops resume` goes on with this one."""
        try:
            return function(*arguments)
        except Exception as problem:
            raise InputError(f"{self.label} raised {_said(problem)}; {_REMEDY}") from problem


_REMEDY = "mend or uninstall that package"


@functools.cache
def plugins(group: Group) -> tuple[Plugin, ...]:
    """Of every installed package, in order of their names. Raises InputError, one line, where one
    cannot be loaded."""
    found = sorted(
        entry_points(group=f"cudaops.{group}"), key=lambda one: (_package(one), one.name)
    )
    return tuple(_loaded(one) for one in found)


def wrong_type(plugin: Plugin, wanted: str) -> InputError:
    """The refusal of one that is not what its group wants."""
    return InputError(f"{plugin.label} is {type(plugin.value).__name__}, not {wanted}; {_REMEDY}")


def unusable(plugin: Plugin, why: str) -> InputError:
    """The refusal of one that is of the right type and cannot be used."""
    return InputError(f"{plugin.label}: {why}; {_REMEDY}")


def _loaded(one: EntryPoint) -> Plugin:
    version = one.dist.version if one.dist else "?"
    label = f"plug-in {_package(one)} {version}, entry point {one.group}:{one.name},"
    try:
        return Plugin(label, one.load())
    except Exception as problem:
        raise InputError(f"{label} cannot be loaded: {_said(problem)}; {_REMEDY}") from problem


def _package(one: EntryPoint) -> str:
    return one.dist.name if one.dist else "?"


def _said(problem: Exception) -> str:
    lines = str(problem).splitlines() or [""]
    return f"{type(problem).__name__}: {lines[0]}".rstrip(": ")
