"""`cudaops profile` on what ncu has measured elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cudaops.domain.profile import Profile
from cudaops.domain.run import ProfileSummary
from cudaops.errors import InputError

if TYPE_CHECKING:
    from cudaops.cuda.devices import Device

REPORT_SUFFIXES = (".csv", ".ncu-rep")


def one_of(source: Path | None, report: Path | None) -> Path:
    """The program or the report, whichever was given. Raises InputError: neither, or both."""
    if source is not None and report is not None:
        raise InputError("name a program or a report with --from, not both")
    given = source or report
    if given is None:
        raise InputError("name the program, or with --from what ncu has written")
    return given


def profile_of_report(path: Path, kernel: str | None, device: str | None) -> ProfileSummary:
    """Metrics and verdict of the longest launch in an ncu report, of `kernel` where one is named.

    `device` None means the one the report names, or the only known one it can have been.
    Raises InputError: not a report or CSV page, no such kernel, unknown device; PrerequisiteError:
    a `.ncu-rep` without the `ncu` extra.
    """
    from cudaops.cuda.ncu_pages import metrics_parsed
    from cudaops.cuda.verdict import diagnose

    profile = _longest(_profiles(path), path, kernel)
    row, profile = _on_device(profile, device, path)
    verdict = diagnose(profile, row)
    return ProfileSummary(
        verdict=verdict.summary,
        subtype=verdict.subtype,
        metrics_parsed=metrics_parsed(profile),
        baseline=profile,
        verdict_detail=verdict,
    )


def _profiles(path: Path) -> list[Profile]:
    from cudaops.cuda.ncu_pages import parse_csv
    from cudaops.sandbox.ncu_rep import profile_of, read_report

    if path.suffix == ".ncu-rep":
        return [profile_of(launch) for launch in read_report(path)]
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return [launch.profile for launch in parse_csv(text)]


def _longest(profiles: list[Profile], path: Path, kernel: str | None) -> Profile:
    named = [profile for profile in profiles if kernel in (None, profile.kernel)]
    if not named:
        known = ", ".join(sorted({profile.kernel for profile in profiles}))
        raise InputError(f"there is no launch of {kernel!r} in {path.name}; it has {known}")
    return max(named, key=lambda profile: profile.duration_us)


def _on_device(profile: Profile, named: str | None, path: Path) -> tuple[Device, Profile]:
    """The device that was named, that the report names, or the only one it can have been."""
    from cudaops.cuda.devices import DEVICES
    from cudaops.cuda.devices import device as find_device
    from cudaops.cuda.ncu_pages import likely_devices

    if named is not None or profile.device in DEVICES:
        row = find_device(named or profile.device)
        return row, profile.model_copy(update={"device": row.name})
    likely = likely_devices(profile)
    if len(likely.devices) == 1:
        row = likely.devices[0]
        told = f"taken for {row.name} by {likely.signs}; --device NAME says otherwise"
        return row, profile.model_copy(update={"device": row.name, "notes": (*profile.notes, told)})
    among = ", ".join(row.name for row in likely.devices) or ", ".join(DEVICES)
    raise InputError(
        f"{path.name} was taken on {likely.signs or repr(profile.device)}; say which device that "
        f"is: --device NAME (one of {among})"
    )
