"""What compute-sanitizer printed, as records. Pure: no process is started here.

The text is read and not the XML that `--xml --save` writes: NVIDIA's manual shows the text of every
kind of finding and the XML of one (a failed API call), and the text has changed little since 2019.
The variants that are known come from that manual (Compute Sanitizer 2026.4, sections "Understanding
Memcheck Errors" to "Example Use of Synccheck") and from outputs that users published; the tests
hold one of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

Kind = Literal[
    "access", "uninitialised", "race", "barrier", "deadlock", "hardware", "heap", "api", "leak",
    "unused", "unknown",
]  # fmt: skip
Index = tuple[int, int, int]

COUNTED: frozenset[Kind] = frozenset(
    ("access", "uninitialised", "race", "barrier", "deadlock", "hardware", "heap", "unknown")
)
"""Kinds that speak against the code that was launched. What an API call returned is the caller's to
report, and memory that was not given back or not used harms nobody."""


class SanitizerLocation(NamedTuple):
    """An instruction, as its line table has it."""

    function: str
    """As printed; mangled under `--demangle no`. Empty where none is named."""
    file: str | None
    """Path or bare name; None where the module has no line table."""
    line: int | None


class Nearest(NamedTuple):
    """The allocation that lies nearest to an address."""

    begin: int
    size_bytes: int


class Other(NamedTuple):
    """The other end of a race."""

    access: Literal["read", "write"]
    place: SanitizerLocation


class SanitizerFinding(NamedTuple):
    """One thing that was found. What a damaged text does not say is None or empty."""

    kind: Kind
    text: str
    """Its first line."""
    places: tuple[SanitizerLocation, ...] = ()
    """Innermost first: the instruction, then the frames it was inlined into or called from."""
    space: str = ""
    """`global`, `shared`, `local`; empty for what is no access."""
    access: str = ""
    """`read`, `write`, `atomic`; empty where the tool does not know."""
    size_bytes: int | None = None
    trouble: str = ""
    """`out of bounds`, `misaligned` or what else is printed of the address; for barriers the class
    of the error, for failed API calls the error's name."""
    address: int | None = None
    nearest: Nearest | None = None
    thread: Index | None = None
    block: Index | None = None
    others: tuple[Other, ...] = ()


class SanitizerReport(NamedTuple):
    """One run of the tool."""

    findings: tuple[SanitizerFinding, ...]
    errors: int | None
    """Of the last summary, hazards at error and warning level together; None: it never came."""
    problems: tuple[str, ...]
    """What the tool says about itself: it could not start, could not follow a launch, ran out."""
    lost: int
    """Lines that belong to no finding, or stand where they cannot be true."""

    @property
    def counted(self) -> tuple[SanitizerFinding, ...]:
        """Findings that speak against the launched code."""
        return tuple(f for f in self.findings if f.kind in COUNTED)

    @property
    def clean(self) -> bool:
        """It ran to its end, nothing went wrong with it, and it found nothing."""
        return self.errors == 0 and not (self.counted or self.problems or self.lost)


_MARK = re.compile(r"^\s?={8,} ?(?P<body>.*)$")
_COUNT = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_TRIPLE = r"\((\d+), ?(\d+), ?(\d+)\)"
_SEVERITY = r"(?:(?:error|warning|warn|info)\s*: ?)?"
_ACCESS = re.compile(
    rf"(?:Potential i|I)nvalid __(?P<space>\w+?)__ (?P<access>\S+) of size (?P<size>{_COUNT})\b"
)
_UNINITIALISED = re.compile(
    rf"Uninitialized __(?P<space>\w+?)__ memory (?P<access>\w+) of size (?P<size>{_COUNT})\b"
)
_BARRIER = re.compile(r"Barrier error detected\.? *(?P<trouble>.*?)\.?$")
_RACE = re.compile(
    rf"{_SEVERITY}Race reported between (?P<access>Read|Write) access at (?P<place>.+)$", re.I
)
_HAZARD = re.compile(
    rf"{_SEVERITY}(?:\([^)]*\) ?)?Potential (?P<order>RAW|WAR|WAW) hazard detected at __shared__ "
    rf"0x(?P<address>[0-9a-f]+) in block {_TRIPLE}",
    re.I,
)
_DEADLOCK = re.compile(r"Deadlock detected in (?P<trouble>.+?) called by .*? at (?P<place>.+)$")
_API = re.compile(r"Program hit (?P<trouble>\S+|.+? \(error \d+\)).* on CUDA API call to \S+$")
_HEAP = re.compile(r"Malloc/Free error encountered ?: ?(?P<trouble>.+)$")
_HARDWARE = re.compile(
    r"(?!.*not supported)(?:Hardware |Warp |Lane |User |Device |Illegal |Misaligned |"
    r"Out-of-range |Invalid |Fatal UVM |Trace/breakpoint|Stack |Cluster |Tensor Memory )",
    re.I,
)
_ERRORS = re.compile(rf"ERROR SUMMARY: (?P<count>{_COUNT}) errors?$")
_HAZARDS = re.compile(
    rf"RACECHECK SUMMARY: {_COUNT} hazards? displayed \((?P<errors>{_COUNT}) errors?, "
    rf"(?P<warnings>{_COUNT}) warnings?\)$"
)
_IGNORED = re.compile(
    r"COMPUTE-SANITIZER$|CUDA-MEMCHECK$|LEAK SUMMARY: |ERROR SUMMARY: \S+ errors? were not printed"
)
_TARGET = re.compile(
    r"(?:Error: )?(?:Target application returned an error|process didn't terminate successfully)"
)
_PROBLEM = re.compile(
    r"(?:.*not supported|Internal Sanitizer |Error\b|Warning\b|Target application|Tracking kernels|"
    r"Default timeout|Unable|Could not|Failed|No attachable)", re.I,
)  # fmt: skip

_AT = re.compile(r"at (?P<place>.+)$")
_BY = re.compile(rf"by thread {_TRIPLE} in block {_TRIPLE}$")
_WHERE = re.compile(
    r"(?:Address|Access (?:to|at)) 0x(?P<address>[0-9a-f]+)(?: is (?P<trouble>.+))?$", re.I
)
_NEAR = re.compile(
    rf"and is (?:(?P<distance>{_COUNT}) bytes (?P<side>after|before)|inside) the nearest "
    rf"allocation at 0x(?P<begin>[0-9a-f]+) of size (?P<size>{_COUNT}) bytes$"
)
_FRAME = re.compile(r"Device Frame: ?(?P<place>.+)$")
_AND = re.compile(
    rf"and (?P<access>Read|Write) access at (?P<place>.+?)(?: \[{_COUNT} hazards?\])?$"
)
_END = re.compile(rf"(?P<access>Read|Write) Thread {_TRIPLE} at (?P<place>.+)$")
_SKIPPED = re.compile(
    r"Saved host backtrace|Host Frame|in |Sync mask of thread|Current Value|Not written|"
    r"These unused|[\d.]+% of|Uninitialized access|during |The application may have hit"
)

_NEW_PLACE = re.compile(r"(?P<function>.*?)[+:]0x[0-9a-fA-F]+(?: in (?P<file>.+):(?P<line>\d+))?$")
_OLD_PLACE = re.compile(
    r"0x[0-9a-fA-F]+(?: in (?:(?P<file>.+?):(?P<line>\d+):)?(?P<function>.+))?$"
)
_BARE_PLACE = re.compile(r"(?P<function>.*?) in (?P<file>.+):(?P<line>\d+)$")


def parse_report(text: str) -> SanitizerReport:
    """Read the text of one run. Never raises: what cannot be read is counted in `lost`.

    A last line without its end is left out, as the tool was stopped while it wrote it: half a
    number is another number.
    """
    findings: list[SanitizerFinding] = []
    problems: list[str] = []
    summaries: list[int] = []
    lost = 0
    for head, details in _records(text):
        if head is None:
            lost += sum(1 for d in details if not _SKIPPED.match(d))
        elif found := _ERRORS.match(head):
            summaries.append(_number(found["count"]))
        elif found := _HAZARDS.match(head):
            summaries.append(_number(found["errors"]) + _number(found["warnings"]))
        elif _IGNORED.match(head) or _TARGET.match(head):
            continue
        elif finding := _headline(head):
            whole, unread = _with_details(finding, details)
            findings.append(whole)
            lost += unread
        elif _PROBLEM.match(head):
            problems.append(head)
        else:
            findings.append(SanitizerFinding("unknown", head))
    return SanitizerReport(
        tuple(findings),
        max(summaries) if summaries else None,
        tuple(dict.fromkeys(problems)),
        lost,
    )


def _records(text: str) -> Iterator[tuple[str | None, list[str]]]:
    """First lines with the indented lines below; None where the first line is missing."""
    head: str | None = None
    details: list[str] = []
    whole = text[: text.rfind("\n") + 1]
    for line in whole.splitlines():
        marked = _MARK.match(line)
        if marked is None:
            continue  # the program's own output
        body = marked["body"].rstrip()
        if body.startswith("   "):
            details.append(body.strip())
            continue
        if head is not None or details:
            yield head, details
        head, details = body.strip() or None, []
    if head is not None or details:
        yield head, details


def _headline(head: str) -> SanitizerFinding | None:
    """A finding from its first line; None where the line is none."""
    for kind, pattern in (("access", _ACCESS), ("uninitialised", _UNINITIALISED)):
        if found := pattern.match(head):
            known = found["access"] if found["access"] in ("read", "write", "atomic") else ""
            return SanitizerFinding(
                cast(Kind, kind), head, (), found["space"], known, _number(found["size"])
            )
    for kind, pattern in (("barrier", _BARRIER), ("heap", _HEAP), ("api", _API)):
        if found := pattern.match(head):
            return SanitizerFinding(
                cast(Kind, kind), head, trouble=found["trouble"].split(" (error")[0]
            )
    if found := _RACE.match(head):
        return SanitizerFinding(
            "race", head, (_place(found["place"]),), "shared", found["access"].lower()
        )
    if found := _HAZARD.match(head):
        return SanitizerFinding(
            "race", head, space="shared", address=int(found["address"], 16),
            block=(int(found[3]), int(found[4]), int(found[5])),
        )  # fmt: skip
    if found := _DEADLOCK.match(head):
        return SanitizerFinding(
            "deadlock", head, (_place(found["place"]),), trouble=found["trouble"]
        )
    if head.startswith("Leaked "):
        return SanitizerFinding("leak", head)
    if head.startswith("Unused "):
        return SanitizerFinding("unused", head)
    return SanitizerFinding("hardware", head) if _HARDWARE.match(head) else None


def _with_details(finding: SanitizerFinding, details: list[str]) -> tuple[SanitizerFinding, int]:
    """The finding with what its further lines say, and how many of them could not be placed.

    The tool prints them in one order. A line that comes out of it belongs to a finding whose first
    line is missing: it and all after it are left alone.
    """
    last = 0
    for position, line in enumerate(details):
        rank, changed = _detail(finding, line)
        if rank == 0:
            continue
        if changed is None or rank < last or (rank == last and rank != _FRAME_RANK):
            return finding, sum(1 for d in details[position:] if not _SKIPPED.match(d))
        finding, last = changed, rank
    return finding, 0


_FRAME_RANK = 5
_UNREADABLE = 9


def _detail(finding: SanitizerFinding, line: str) -> tuple[int, SanitizerFinding | None]:
    """Its place in the order with the changed finding; 0 for what tells nothing."""
    if finding.kind == "race":
        return _race_detail(finding, line)
    if found := _AT.match(line):
        return 1, finding._replace(places=(_place(found["place"]),))
    if found := _BY.match(line):
        numbers = [int(n) for n in found.groups()]
        return 2, finding._replace(
            thread=(numbers[0], numbers[1], numbers[2]), block=(numbers[3], numbers[4], numbers[5])
        )
    if found := _WHERE.match(line):
        return 3, finding._replace(
            address=int(found["address"], 16), trouble=found["trouble"] or finding.trouble
        )
    if found := _NEAR.match(line):
        return 4, finding._replace(nearest=_nearest(finding.address, found))
    if found := _FRAME.match(line):
        return _FRAME_RANK, finding._replace(places=(*finding.places, _place(found["place"])))
    return (
        (0, None) if _SKIPPED.match(line) or finding.kind in ("hardware", "unused") else (9, None)
    )


def _race_detail(finding: SanitizerFinding, line: str) -> tuple[int, SanitizerFinding | None]:
    if found := _AND.match(line) or _END.match(line):
        access: Literal["read", "write"] = "read" if found["access"] == "Read" else "write"
        place = _place(found["place"])
        if not finding.places:
            return _FRAME_RANK, finding._replace(places=(place,), access=access)
        other = Other(access, place)
        return _FRAME_RANK, finding._replace(others=(*finding.others, other))
    return (0, None) if _SKIPPED.match(line) else (_UNREADABLE, None)


def _nearest(address: int | None, found: re.Match[str]) -> Nearest | None:
    """None where the printed distance contradicts the addresses.

    The byte behind the end is printed as `1 bytes after`.
    """
    near = Nearest(int(found["begin"], 16), _number(found["size"]))
    if address is None:
        return None
    if found["side"] is None:
        return near if near.begin <= address < near.begin + near.size_bytes else None
    true = (
        address - (near.begin + near.size_bytes) + 1
        if found["side"] == "after"
        else near.begin - address
    )
    return near if true == _number(found["distance"]) else None


def _place(text: str) -> SanitizerLocation:
    """Every spelling since 2019; what is not understood is a function without a line."""
    text = text.strip()
    old = _OLD_PLACE.fullmatch(text)
    found = old or _NEW_PLACE.fullmatch(text) or _BARE_PLACE.fullmatch(text)
    if found is None:
        return SanitizerLocation(text, None, None)
    line = int(found["line"]) if found["line"] else 0
    function = (found["function"] or "").strip()
    return (
        SanitizerLocation(function, found["file"], line)
        if line
        else SanitizerLocation(function, None, None)
    )


def _number(text: str) -> int:
    return int(text.replace(",", ""))
