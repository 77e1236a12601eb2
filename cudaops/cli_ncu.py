"""`cudaops profile` on what ncu has measured elsewhere."""

from __future__ import annotations

from pathlib import Path

from cudaops.domain.run import ProfileSummary
from cudaops.errors import InputError

REPORT_SUFFIXES = (".csv", ".ncu-rep")


def profile_of_report(path: Path, kernel: str | None, device: str | None) -> ProfileSummary:
    """Metrics and verdict of the longest launch in an ncu report, of `kernel` where one is named.

    `device` None means the one the report names.
    Raises InputError: not a report or CSV page, no such kernel, unknown device; PrerequisiteError:
    a `.ncu-rep` without the `ncu` extra.
    """
    from cudaops.cuda.devices import DEVICES
    from cudaops.cuda.devices import device as find_device
    from cudaops.cuda.ncu_csv import parse_csv, parse_raw
    from cudaops.cuda.verdict import diagnose
    from cudaops.sandbox.ncu_rep import raw_pages

    if path.suffix == ".ncu-rep":
        launches = tuple(launch for page in raw_pages(path) for launch in parse_raw(page))
    else:
        try:
            launches = parse_csv(path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error
    named = [launch for launch in launches if kernel in (None, launch.profile.kernel)]
    if not named:
        known = ", ".join(sorted({launch.profile.kernel for launch in launches}))
        raise InputError(f"there is no launch of {kernel!r} in {path.name}; it has {known}")
    profile = max(named, key=lambda launch: launch.profile.duration_us).profile
    if device is None and profile.device not in DEVICES:
        raise InputError(
            f"{path.name} was taken on {profile.device!r}; say which device that is: --device NAME"
        )
    row = find_device(device or profile.device)
    profile = profile.model_copy(update={"device": row.name})
    verdict = diagnose(profile, row)
    return ProfileSummary(
        verdict=verdict.summary,
        subtype=verdict.subtype,
        metrics_parsed=len(profile.metrics),
        baseline=profile,
        verdict_detail=verdict,
    )
