"""What a host may read before and beside calling tools: rules, devices, expert notes."""

from __future__ import annotations

from typing import Any

from fastmcp import FastMCP
from pydantic import TypeAdapter

from cudaops.cuda.devices import DEVICES, Device
from cudaops.cuda.rules import RULES, SUBTYPES
from cudaops.prompts import expert_notes

_DEVICE_ROWS: TypeAdapter[list[Device]] = TypeAdapter(list[Device])


def add_rules(server: FastMCP) -> None:
    """Register the resources on verdicts and devices."""

    @server.resource("cudaops://verdict-rules", mime_type="application/json", title="Verdict rules")
    def verdict_rules() -> dict[str, Any]:
        """Every rule that a verdict is drawn by: conditions with thresholds and their sources, in
        the order that decides; and what relieves each subtype."""
        return {
            "rules": [
                {
                    "id": rule.id,
                    "subtype": rule.subtype,
                    "priority": rule.priority,
                    "severity": rule.severity,
                    "conditions": [condition._asdict() for condition in rule.conditions],
                    "unless": [condition._asdict() for condition in rule.unless],
                    "relief": rule.relief,
                }
                for rule in sorted(RULES, key=lambda rule: rule.priority)
            ],
            "subtypes": {name: info._asdict() for name, info in SUBTYPES.items()},
        }

    @server.resource("cudaops://devices", mime_type="application/json", title="Devices")
    def devices() -> list[dict[str, Any]]:
        """Devices that times can be modelled for, with what is known of each; null: not known."""
        rows: list[dict[str, Any]] = _DEVICE_ROWS.dump_python(list(DEVICES.values()), mode="json")
        return rows


def add_expert_notes(server: FastMCP) -> None:
    """Register the briefs, each under its own address."""

    @server.resource("expert://{note}", mime_type="text/markdown", title="Brief on one bottleneck")
    def expert_note(note: str) -> str:
        """A brief on one bottleneck: signal, causes, fixes for the code, anti-patterns."""
        found = expert_notes.read_note(note)
        return f"# {found.title}\n\n{found.text}\n"

    @server.resource("cudaops://expert-notes", mime_type="application/json", title="Expert notes")
    def catalogue() -> dict[str, str]:
        """Address of every brief, with the signal it is about."""
        return {f"expert://{note.id}": note.signal for note in expert_notes.all_notes()}
