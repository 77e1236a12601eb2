"""Which tests run, in which order, and what may be left out: the lanes of the Makefile.

| lane | what |
|---|---|
| `fast` | what takes less than `SLOW_S` with its fixtures, by `durations.json`; a new test is |
| `test` | all but what is marked `deep`: README's `make test`, and CI |
| `deep` | what is marked `deep`, and hypothesis in thousands of examples |
| `all` | everything, hypothesis likewise: `make test-deep` |

With `--turn N` only a share of what takes long, another in each turn: of the `test` lane's tests
of `SHARED_S` and more one in `SHARES`, but for those that are marked `essential`, and of the `deep`
lane one in `PARTS`. CI takes the turns one after the other (`.ci/turn`): it has 90 minutes.

Files go longest first, so that no worker ends long after the others. `--record` writes what was
measured into `durations.json`: a test without the fixtures that it shares with others, and these
by their names in brackets, under the file or, of a whole session, the folder that they are for.
Skips are listed at the end by reason; `--no-holes` makes any but a missing GPU a failure.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import hypothesis
import pytest

DURATIONS = Path(__file__).with_name("durations.json")
"""Seconds by file and test or `[fixture]`, those of `RECORDED_S` and more; `make durations`."""
RECORDED_S = 0.05
SLOW_S = 0.1
USUAL_EXAMPLES = 100
"""As hypothesis has it by default."""
DEEP_EXAMPLES = 2000
"""Least number of them in the deep lanes."""
DEEP_FACTOR = 20
"""By which a number that a test names itself grows there."""
SHARED_S = 1.0
SHARES = 64
"""Chosen: an eighth of them, and the rest, took a machine of CI 53 minutes, a sixteenth 39 and 43,
a thirty-second 25 (2026-11-30)."""
PARTS = 240
"""Chosen: an eighth of the deep lane took 22 minutes there, and after it had grown a 120th 7."""
_deep = False

NO_GPU = "no NVIDIA GPU"
NO_TRITON = "no Triton"
"""How the reasons begin that CI accepts: torch and Triton take 5 GB."""
INSTALLED_BY = {
    "bwrap": "apt-get install bubblewrap",
    "this machine reaches": "apt-get install bubblewrap",
    "Chromium": "apt-get install chromium",
    "docker compose": "apt-get install docker-compose",
    "nvcc not found": "python -m pip install -e '.[toolkit]'",
    "cuobjdump": "python -m pip install -e '.[dev]'",
    "nvdisasm": "python -m pip install -e '.[dev]'",
    "NVRTC": "python -m pip install -e '.[dev]'",
    "compute-sanitizer": "python -m pip install -e '.[dev]'",
    "could not import": "python -m pip install -e '.[dev]'",
}

Durations = dict[str, dict[str, float]]


def read_durations() -> Durations:
    """What was recorded; nothing where nothing was."""
    try:
        found: Durations = json.loads(DURATIONS.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return found


def examples(usually: int) -> int:
    """How many examples hypothesis tries, where its default of 100 is not right."""
    return max(DEEP_EXAMPLES, DEEP_FACTOR * usually) if _deep else usually


def mostly_deep(values: Iterable[Any], quick: int) -> list[Any]:
    """Parameters of a test: the first `quick` for `make test`, the others for the deep lane."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    marks = ((), (pytest.mark.deep,))
    return [pytest.param(*row, marks=marks[n >= quick]) for n, row in enumerate(rows)]


def is_its_turn(name: str, turn: int | None, shares: int) -> bool:
    """Whether a test, or a file whose tests share what takes long, is of the turn's share."""
    own = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return turn is None or own % shares == turn % shares


def add_options(parser: pytest.Parser) -> None:
    """The options of this module."""
    group = parser.getgroup("lanes")
    group.addoption("--lane", choices=("fast", "test", "deep", "all"))
    group.addoption(
        "--turn", type=int, default=None, metavar="N", help="a share of what takes long"
    )
    group.addoption("--record", action="store_true", help=f"write {DURATIONS.name}")
    group.addoption("--left-out", type=Path, metavar="FILE", help="append what was skipped and why")
    group.addoption("--no-holes", action="store_true", help="only a missing GPU excuses a skip")


def configure(config: pytest.Config) -> None:
    """Examples of hypothesis by lane, and the recorder of durations."""
    global _deep  # modules of tests ask for `examples` while they are imported
    _deep = config.getoption("lane") in ("deep", "all")
    # No deadline: a loaded machine is no fault of the code.
    most = DEEP_EXAMPLES if _deep else USUAL_EXAMPLES
    hypothesis.settings.register_profile("lanes", max_examples=most, deadline=None)
    hypothesis.settings.load_profile("lanes")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(config), "lanes-recorder")
    if config.getoption("record"):
        config.pluginmanager.register(_FixtureClock(), "lanes-fixtures")


def header(config: pytest.Config) -> str:
    """Which share of the slow tests this is; empty where it is all."""
    lane, turn = config.getoption("lane"), config.getoption("turn")
    shares = {"test": SHARES, "deep": PARTS}.get(lane)
    if turn is None or shares is None:
        return ""
    what = "slow tests" if lane == "test" else "deep lane"
    return f"{what}: share {turn % shares + 1} of {shares}; all of them with TURN="


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of the lane; put files with most work first."""
    durations = read_durations()
    lane, turn = config.getoption("lane"), config.getoption("turn")

    def seconds(item: pytest.Item) -> tuple[float, float]:
        """Of the test alone, and of the longest fixture that it shares with others."""
        file, _, test = item.nodeid.partition("::")
        known = durations.get(file, {})
        shared = [known.get(f"[{name}]", 0.0) for name in getattr(item, "fixturenames", ())]
        for name, made in _made_for(item):
            shared.append(durations.get(made, {}).get(f"[{name}]", 0.0))
        return known.get(test, 0.0), max(shared, default=0.0)

    def belongs(item: pytest.Item) -> bool:
        if lane not in ("fast", "test", "deep"):
            return True
        marks = {mark.name for mark in item.iter_markers()}
        deep = "deep" in marks and "essential" not in marks
        if lane == "deep":
            of_it = deep or getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
            return of_it and is_its_turn(item.nodeid, turn, PARTS)
        alone, shared = seconds(item)
        if deep or lane == "fast":
            return not deep and max(alone, shared) < SLOW_S
        if max(alone, shared) < SHARED_S or "essential" in marks:
            return True
        name = item.nodeid if alone >= shared else item.nodeid.partition("::")[0]
        return is_its_turn(name, turn, SHARES)

    left_out = [item for item in items if not belongs(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    kept = [item for item in items if belongs(item)]
    costs: dict[Path, float] = defaultdict(float)
    shared: dict[Path, float] = defaultdict(float)
    for item in kept:
        alone, longest = seconds(item)
        costs[item.path] += alone
        shared[item.path] = max(shared[item.path], longest)
    items[:] = sorted(kept, key=lambda i: (-costs[i.path] - shared[i.path], i.path))


def _made_for(item: pytest.Item) -> Iterable[tuple[str, str]]:
    """Fixtures that a test uses, with the folder or file that each is defined for."""
    info = getattr(item, "_fixtureinfo", None)
    for name, found in (info.name2fixturedefs if info else {}).items():
        yield name, found[-1].baseid


class _FixtureClock:
    """Tells the process that reports how long fixtures took that several tests share: by the
    properties of the test that happened to ask first.
    """

    def __init__(self) -> None:
        self._running = 0.0
        self._took: list[tuple[str, str, float]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        inside, self._running = self._running, 0.0
        started = time.monotonic()
        try:
            return (yield)
        finally:
            spent = time.monotonic() - started
            if fixturedef.scope != "function":
                home = "" if fixturedef.scope == "module" else fixturedef.baseid
                self._took.append((fixturedef.argname, home, spent - self._running))
                self._running = spent
            self._running += inside

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        for name, home, spent in self._took:
            file = home or item.nodeid.partition("::")[0]
            report.user_properties.append((f"{_SHARED}{file}::[{name}]", spent))
        self._took.clear()
        return report


_SHARED = "fixture "


class _Recorder:
    """What the process that reports sees: durations and skips."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: dict[str, float] = defaultdict(float)
        self._skips: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        for name, spent in report.user_properties:
            if name.startswith(_SHARED):
                seconds, fixture = float(str(spent)), name.removeprefix(_SHARED)
                self._seconds[report.nodeid] -= seconds
                self._seconds[fixture] = max(self._seconds[fixture], seconds)
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skips[str(report.longrepr[2]).removeprefix("Skipped: ")] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._config.getoption("record"):
            write_durations(self._seconds, whole=self._config.getoption("lane") is None)
        if self._config.getoption("no_holes") and self._holes():
            session.exitstatus = max(int(session.exitstatus), 1)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._skips:
            return
        terminalreporter.section("left out")
        lines = [f"{count:4}  {reason}" for reason, count in sorted(self._skips.items())]
        for line in lines:
            terminalreporter.write_line(line)
        if (file := self._config.getoption("left_out")) is not None:
            with file.open("a", encoding="utf-8") as kept:
                kept.writelines(f"{line}\n" for line in lines)
        for command in sorted({c for r in self._holes() if (c := remedy(r))}):
            terminalreporter.write_line(f"      to run them too:  {command}", yellow=True)
        if self._config.getoption("no_holes") and (holes := self._holes()):
            text = f"{sum(self._skips[r] for r in holes)} tests were left out for no missing GPU"
            terminalreporter.write_line(text, red=True)

    def _holes(self) -> list[str]:
        return [reason for reason in self._skips if not reason.startswith((NO_GPU, NO_TRITON))]


def remedy(reason: str) -> str | None:
    """The command that installs what a skip lacks."""
    return next((command for part, command in INSTALLED_BY.items() if part in reason), None)


def write_durations(seconds: dict[str, float], *, whole: bool) -> None:
    """Put what was measured in the place of what was known of the same tests; `whole`: of all."""
    known: Durations = {} if whole else read_durations()
    for nodeid, spent in seconds.items():
        file, _, test = nodeid.partition("::")
        tests = known.setdefault(file, {})
        tests.pop(test, None)
        if spent >= RECORDED_S:
            tests[test] = round(spent, 2)
    text = json.dumps(_sorted(known.items()), indent=0, ensure_ascii=False)
    DURATIONS.write_text(text + "\n", encoding="utf-8")


def _sorted(files: Iterable[tuple[str, dict[str, float]]]) -> Durations:
    return {file: dict(sorted(tests.items())) for file, tests in sorted(files) if tests}
