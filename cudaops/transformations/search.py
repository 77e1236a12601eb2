"""Sequences of transformations, sought by what each step brings.

Rounds of a beam: the best drafts so far are each given every further step, a transformation with a
setting; what gained in earlier rounds is tried first, what lost is left out. Small gains add up:
a step is worth keeping where it gains at all, the bar is for the end. Then every step of the best
is left out in turn, which says what each brought, and those that brought nothing go.

What a kernel's device functions do is brought into it first: the compiler does that anyway. It
stays where a step cannot do without. One trial says whether it costs something by itself (another
order of loads, other registers); where it does, steps are made without it if they can be.

A draft of several launches is worked on at each of them, the hottest first, but for those that
take too little to matter.

Deterministic: the same times give the same search, where it does not end by the clock.
"""

from __future__ import annotations

import contextvars
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from cudaops.domain.rewrite import Rewrite
from cudaops.domain.search import TriedDraft
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import REROUNDING, Setting, Transformation
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.in_the_way import in_the_way
from cudaops.transformations.inline import Inline
from cudaops.transformations.registry import TRANSFORMATIONS

GAIN = 1.01
"""A round that betters the best by less than this factor is the last one, and a step without which
the result is slower by less is dropped. Chosen: what two measurements of one kernel differ by."""
WORTHWHILE = (0.0001, 0.9, 0.98, 1.0)
"""What a step must have brought where it was tried, to be tried in the first round, the second and
so on. Chosen: what lost a little alone may gain behind another step; what lost much does not."""
FIRST = 2
UNPROMISING = 1.05
"""Further settings of a transformation than its first ones are tried unless the best of those made
its draft slower by this factor."""
REPEATS = 2
"""So often one transformation may stand in a sequence: another loop, another pointer."""
PATIENCE = 60
"""A round but the first ends after so many trials that did not better the best. Chosen: what gained
before is tried first, on the best draft first; a draft takes some 40 steps."""
BEHIND = 2.0
"""A draft that takes so many times as long as the best one now is not gone on from. Chosen: by then
most steps have been tried on both it and the best, and few bring as much on the one alone."""
LATE = 3.0
"""How many times as long as the last gain took to come one more is waited for, beside
`Limits.idle_s`. Of 34 searches on H100s that up to seven other jobs used (2026-11-25) three would
have ended 12 to 37 s earlier for it, one of them at 20.0x instead of 20.3x."""
FAILURES = 3
"""So often a transformation may give what does not compile or run before it is left out."""


class Timed(NamedTuple):
    """Result of trying one draft."""

    time_us: float | None
    """Weighted over what is timed; None where there is none."""
    failure: str | None = None
    ends_us: tuple[float, float] | None = None  # as in `TriedDraft`


@dataclass(frozen=True)
class Node:
    """One draft that was tried."""

    number: int
    draft: Draft
    rewrite: Rewrite
    time_us: float
    parent: int | None = None
    """Number of the draft that it was made from."""


@dataclass(frozen=True)
class Limits:
    """When a search ends."""

    max_trials: int
    deadline: float
    """By `time.monotonic`."""
    width: int = 3
    """Drafts that a round goes on from. Chosen: times of near equals change places."""
    depth: int = 8
    """Steps of a sequence at most."""
    idle_s: float = math.inf
    """Seconds that a search goes on without gain, once it has gained: see `LATE`."""


class Share(NamedTuple):
    """What one step of a sequence brings."""

    name: str
    setting: Setting
    factor: float | None
    """Time without it over time with it; None where the rest cannot do without."""


@dataclass(frozen=True)
class Found:
    """What a search found."""

    best: tuple[Node, ...]
    """The fastest first, each of other transformations than those before it; the author's kernel
    is not among them."""
    shares: tuple[Share, ...]
    """Of the best one's steps."""
    baseline_us: float
    tried: tuple[TriedDraft, ...]
    """In the order of trying."""
    stopped: str
    """Why it ended: `no step gains`, `trials`, `seconds`, `seconds without gain`."""
    trials: int
    in_the_way: str
    """See `in_the_way`."""


class _Child(NamedTuple):
    """A draft to be tried."""

    parent: Node
    draft: Draft
    rewrite: Rewrite


_Answer = Future[Sequence[Timed]]


class _Step(NamedTuple):
    """One that may be tried."""

    one: Transformation
    setting: Setting
    number: int
    """The setting's place among those that are offered."""
    begun: Draft
    """What it is applied to."""


class _Key(NamedTuple):
    """What is known of a step is known of the kernel that it was made in."""

    name: str
    setting: str
    kernel: str
    """See `Step.kernel`."""


class _Begun(NamedTuple):
    """Drafts that are being timed."""

    children: Sequence[_Child]
    timed: _Answer


Try = Callable[[Sequence[Rewrite]], Sequence[Timed]]
"""Times of several rewrites, which may be built beside each other."""


@dataclass
class Search:
    """One search, under way."""

    attempt: Try
    limits: Limits
    is_right: Callable[[Rewrite], str | None] = lambda rewrite: None
    """Why a rewrite computes something else, asked before anything is built on it."""
    apart: Callable[[Rewrite], Sequence[float]] = lambda rewrite: ()
    """The time of each launch of a rewrite; empty where it is not known."""
    relieves: Collection[str] = ()
    """Names of transformations that are remedies for what limits the kernel: they come first."""
    offered: Sequence[Transformation] = TRANSFORMATIONS
    say: Callable[[str], None] = lambda line: None
    batch: int = 2
    """Rewrites handed to `attempt` at once."""
    writing: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while drafts are written."""
    ahead: Callable[[Rewrite], None] = lambda rewrite: None
    """Told of a draft as soon as it is written: `attempt` will most likely be given it next."""
    _nodes: list[Node] = field(default_factory=list)
    _texts: set[str] = field(default_factory=set)
    _gains: dict[_Key, float] = field(default_factory=dict)
    """Log of the best factor a step brought."""
    _broken: dict[str, int] = field(default_factory=dict)
    _refused: Counter[str] = field(default_factory=Counter)
    _tried: list[TriedDraft] = field(default_factory=list)
    _wrong: set[int] = field(default_factory=set)
    _right: set[int] = field(default_factory=set)
    _thread: ThreadPoolExecutor = field(init=False)
    _trials: int = 0
    _idle: int = 0
    """Trials since the best was bettered, in this round."""
    _stopped: str = ""
    _began: float = 0.0
    _gained_s: float | None = None
    """Seconds until the best was bettered last; None where it was not."""

    def run(self, root: Draft, baseline_us: float) -> Found:
        """Search from a draft whose time is known."""
        self._began = time.monotonic()
        with ThreadPoolExecutor(max_workers=1) as self._thread:
            return self._run(root, baseline_us)

    def _run(self, root: Draft, baseline_us: float) -> Found:
        first = Node(0, root, root.rewrite(), baseline_us)
        self._nodes, self._right = [first], {0}
        self._texts = {first.rewrite.source_id}
        self._try_inlined(first)
        beam, best_us = [first], baseline_us
        for depth in range(self.limits.depth):
            before, self._idle = len(self._nodes), 0
            self._expand(beam, depth)
            beam = self._beam(before)
            now = min((n.time_us for n in beam), default=best_us)
            if self._stopped or not beam or now * GAIN > best_us:
                break
            best_us = now
        best = self._distinct()
        shares: tuple[Share, ...] = ()
        if best:
            simpler, shares = self._simplified(best[0], root)
            best = (simpler, *(n for n in best[1:] if n is not simpler))
        why = in_the_way(self._refused, root.subject.kernel)
        ended = self._stopped or "no step gains"
        return Found(best, shares, baseline_us, tuple(self._tried), ended, self._trials, why)

    def _try_inlined(self, first: Node) -> None:
        """Find out what it brings or costs to have functions' bodies in the kernels."""
        for focused, kernel in self._focused(first):
            draft = self._inlined(first.draft, focused, kernel)
            if draft is None:
                continue
            with suppress(NotUnderstood):
                child = _Child(first, draft, draft.rewrite())
                self._texts.add(child.rewrite.source_id)
                self.ahead(child.rewrite)
                if (begun := self._begin([child])) is not None:
                    self._end(*begun)

    def _inlining(self, kernel: str) -> float:
        """Log of the factor that it brought by itself; minus infinity where it did not run."""
        return self._gains.get(_key(Inline.name, {}, kernel), 0.0)

    # One round
    def _expand(self, beam: Sequence[Node], depth: int) -> None:
        """Try every step that may gain from these. While some are timed the next are written, and
        built as soon as each of them is."""
        children = (
            child for node in beam if not self._is_behind(node)
            for child in self._children(node, depth)
        )  # fmt: skip
        begun: _Begun | None = None
        while not self._stopped and not self._is_idle(depth):
            waiting = self._written(children)
            if begun is not None:
                self._end(*begun)
            begun = self._begin(waiting) if waiting and not self._stopped else None
            if begun is None:
                return
        if begun is not None:
            self._end(*begun)

    def _written(self, children: Iterator[_Child]) -> Sequence[_Child]:
        """The next batch."""
        waiting = []
        with self.writing():
            for child in islice(children, self.batch):
                self.ahead(child.rewrite)
                waiting.append(child)
        return waiting

    def _is_behind(self, node: Node) -> bool:
        """Behind one that is right: a wrong draft may be as fast as it likes."""
        ahead = [n for n in self._nodes if n.time_us * BEHIND < node.time_us]
        return any(self._checked(n) for n in sorted(ahead, key=lambda n: (n.time_us, n.number)))

    def _is_idle(self, depth: int) -> bool:
        return depth > 0 and self._idle >= PATIENCE

    def _children(self, node: Node, depth: int) -> Iterator[_Child]:
        for focused, kernel in self._focused(node):
            steps = self._steps(node.draft, focused, kernel, depth)
            for step in sorted(steps, key=lambda step: self._place(step, kernel)):
                one, setting, number, begun = step
                if self._broken.get(one.name, 0) >= FAILURES:
                    continue
                if number >= FIRST and self._best_gain(one.name, kernel) < -math.log(UNPROMISING):
                    continue
                try:
                    at = replace(begun, focus=focused.focus)
                    draft = _applied(begun, at, kernel, one, setting)
                    rewrite = draft.rewrite()
                except NotUnderstood as problem:
                    self._refused[str(problem)] += 1
                    continue
                if rewrite.source_id not in self._texts:
                    self._texts.add(rewrite.source_id)
                    yield _Child(node, draft, rewrite)

    def _focused(self, node: Node) -> Iterator[tuple[Draft, str]]:
        """The draft at each of its launches, the hottest first, with `Step.kernel`; not at those
        without which it would be no faster."""
        draft = node.draft
        count = len(draft.launches)
        times = self.apart(node.rewrite) if count > 1 else ()
        first = sorted(range(count), key=lambda i: i != draft.focus)
        if len(times) != count or not sum(times):
            times = [1.0] * count
        for at in sorted(first, key=lambda i: -times[i]):
            if sum(times) > GAIN * (sum(times) - times[at]):
                kernel = "" if at == draft.focus else draft.launches[at].kernel
                yield replace(draft, focus=at), kernel

    def _steps(self, draft: Draft, focused: Draft, kernel: str, depth: int) -> Iterator[_Step]:
        """All that may gain: of the draft with its functions' bodies in the kernel and, where that
        does not offer a transformation, of the draft as it is; the other way round where their
        bodies cost something."""
        seen: set[str] = set()
        brought = self._inlining(kernel)
        inlined = self._inlined(draft, focused, kernel) if brought > -math.inf else None
        costs = brought < -math.log(UNPROMISING)
        for begun in (draft, inlined) if costs else (inlined, draft):
            if begun is None:
                continue
            at = replace(begun, focus=focused.focus)
            found = [
                _Step(one, setting, number, begun)
                for one, setting, number in self._offers(at, kernel, depth)
                if one.name not in seen
            ]
            seen |= {step.one.name for step in found}
            yield from found

    def _inlined(self, draft: Draft, focused: Draft, kernel: str) -> Draft | None:
        """With what the kernel at hand calls in it; None where there is nothing of that."""
        for one in self.offered:
            if isinstance(one, Inline):
                try:
                    for setting in one.settings(focused):
                        return _applied(draft, focused, kernel, one, setting)
                except NotUnderstood:
                    return None
        return None

    def _offers(
        self, draft: Draft, kernel: str, depth: int
    ) -> Iterator[tuple[Transformation, Setting, int]]:
        done = [step.name for step in draft.steps if step.kernel == kernel]
        for one in self.offered:
            if self._broken.get(one.name, 0) >= FAILURES or done.count(one.name) >= REPEATS:
                continue
            if isinstance(one, Inline):
                continue
            try:
                for number, setting in enumerate(one.settings(draft)):
                    if self._gains.get(_key(one.name, setting, kernel), 0.0) >= self._least(depth):
                        yield one, setting, number
            except NotUnderstood as problem:
                self._refused[str(problem)] += 1

    @staticmethod
    def _least(depth: int) -> float:
        """Log of the factor that a known step must have brought to be tried again."""
        return math.log(WORTHWHILE[min(depth, len(WORTHWHILE) - 1)])

    def _place(self, step: _Step, kernel: str) -> tuple[float, bool, bool]:
        """Order of trying: what gained most, then what is not known, the first settings of each
        and remedies before others."""
        one, setting, number, _ = step
        gain = self._gains.get(_key(one.name, setting, kernel), 0.0)
        return -gain, number >= FIRST, one.name not in self.relieves

    def _best_gain(self, name: str, kernel: str) -> float:
        """Log of the best factor that any setting of it brought so far; 0 where none was tried."""
        known = (g for key, g in self._gains.items() if (key.name, key.kernel) == (name, kernel))
        return max(known, default=0.0)

    def _begin(self, children: Sequence[_Child]) -> _Begun | None:
        """Have them timed; None where a limit is reached."""
        if time.monotonic() >= self.limits.deadline:
            self._stopped = "seconds"
            return None
        if self._is_late():
            self._stopped = "seconds without gain"
            return None
        children = children[: self.limits.max_trials - self._trials]
        if not children:
            self._stopped = "trials"
            return None
        self._trials += len(children)
        context = contextvars.copy_context()
        rewrites = [child.rewrite for child in children]
        return _Begun(children, self._thread.submit(context.run, self.attempt, rewrites))

    def _end(self, children: Sequence[_Child], timed: _Answer) -> None:
        for child, found in zip(children, timed.result(), strict=True):
            self._note(child, found)

    def _note(self, child: _Child, found: Timed) -> None:
        parent, draft, rewrite = child
        step = draft.steps[-1]
        tree = spelled(draft.steps)
        if found.time_us is None:
            self._idle += 1
            self._fails(step)
            self._tried.append(TriedDraft(title=tree, time_us=None, failure=found.failure))
            self.say(f"{tree}: {found.failure}")
            return
        self._tried.append(TriedDraft(title=tree, time_us=found.time_us, ends_us=found.ends_us))
        best_us = min(n.time_us for n in self._nodes)
        self._idle += 1
        if found.time_us * GAIN < best_us:
            self._idle, self._gained_s = 0, time.monotonic() - self._began
        node = Node(len(self._nodes), draft, rewrite, found.time_us, parent.number)
        self._nodes.append(node)
        gain = math.log(parent.time_us / found.time_us)
        if any(x.name == Inline.name for x in draft.steps[len(parent.draft.steps) : -1]):
            gain -= self._inlining(step.kernel)
        key = _key(step.name, step.setting, step.kernel)
        self._gains[key] = max(gain, self._gains.get(key, gain))
        self.say(f"{tree}: {found.time_us:.1f} us, {self._nodes[0].time_us / found.time_us:.2f}x")

    def _is_late(self) -> bool:
        """Whether no gain is to be expected any more."""
        if self._gained_s is None:
            return False
        return time.monotonic() - self._began > LATE * self._gained_s + self.limits.idle_s

    def _fails(self, step: Step) -> None:
        """Not with this setting again, and after some of them not at all."""
        self._gains[_key(step.name, step.setting, step.kernel)] = -math.inf
        self._broken[step.name] = self._broken.get(step.name, 0) + 1

    # What is gone on from

    def _beam(self, before: int) -> list[Node]:
        """The fastest that nothing was built on yet; the first of them is right on the captured
        inputs."""
        fresh = [n for n in self._nodes[before:] if n.time_us < self._nodes[n.parent or 0].time_us]
        kept: list[Node] = []
        for node in sorted(fresh, key=lambda n: (n.time_us, n.number)):
            if len(kept) == self.limits.width:
                break
            if kept or self._checked(node):
                kept.append(node)
        return kept

    def _checked(self, node: Node) -> bool:
        if node.number in self._right or node.number in self._wrong:
            return node.number in self._right
        problem = self.is_right(node.rewrite)
        (self._right if problem is None else self._wrong).add(node.number)
        if problem is not None:
            self._fails(node.draft.steps[-1])
            title = spelled(node.draft.steps)
            self._tried.append(TriedDraft(title=title, time_us=None, failure=problem))
            self.say(f"{title}: {problem}")
        return problem is None

    def _distinct(self, most: int = 3) -> tuple[Node, ...]:
        """The fastest of each set of transformations, where there is one among them that rounds as
        the author's kernel does; the first is right on the captured inputs, and none is known to be
        wrong."""
        found: dict[frozenset[str], Node] = {}
        spare: list[Node] = []
        for node in sorted(self._nodes[1:], key=lambda n: (n.time_us, n.number)):
            steps = frozenset(x.name for x in node.draft.steps)
            if len(found) == most or node.time_us * GAIN > self._nodes[0].time_us:
                break
            if node.number in self._wrong or steps in found:
                continue
            if len(found) == most - 1 and all(x & REROUNDING for x in (*found, steps)):
                spare.append(node)
            elif found or self._checked(node):
                found[steps] = node
        return (*found.values(), *spare)[:most]

    # Which steps are worth their text

    def _simplified(self, node: Node, root: Draft) -> tuple[Node, tuple[Share, ...]]:
        """Without the steps that bring nothing; and what each of the others brings."""
        steps = list(node.draft.steps[len(root.steps) :])
        self._build_all_without_one(root, steps)
        shares: dict[int, float | None] = {}
        at = len(steps) - 1
        while at >= 0 and len(steps) > 1:
            rest = [x for i, x in enumerate(steps) if i != at]
            if all(x.name == Inline.name for x in rest):  # as fast as what it began with
                shares[at] = self._nodes[0].time_us / node.time_us
                at -= 1
                continue
            without = self._again(root, rest)
            if without is None:
                shares[at] = None
            elif without.time_us <= node.time_us * GAIN and self._checked(without):
                node, steps = without, rest
                shares = {i - (i > at): f for i, f in shares.items()}
            else:
                shares[at] = without.time_us / node.time_us
            at -= 1
        if len(steps) == 1:
            shares = {0: self._nodes[0].time_us / node.time_us}
        told = (Share(x.name, x.setting, shares.get(i)) for i, x in enumerate(steps))
        return node, tuple(told)

    def _build_all_without_one(self, root: Draft, steps: Sequence[Step]) -> None:
        """They are timed one after the other, and each is most likely wanted."""
        texts = {n.rewrite.source_id for n in self._nodes}
        for at in reversed(range(len(steps) if len(steps) > 1 else 0)):
            made = self._remade(root, [x for i, x in enumerate(steps) if i != at])
            if made is not None and made[1].source_id not in texts:
                self.ahead(made[1])

    def _remade(self, root: Draft, steps: Sequence[Step]) -> tuple[Draft, Rewrite] | None:
        """A draft made of these steps anew; None where one of them cannot be."""
        try:
            draft = remade(root, steps, self.offered)
            return draft, draft.rewrite()
        except NotUnderstood:
            return None

    def _again(self, root: Draft, steps: Sequence[Step]) -> Node | None:
        """The same, timed; None also where it has no time."""
        made = self._remade(root, steps)
        if made is None:
            return None
        draft, rewrite = made
        known = next((n for n in self._nodes if n.rewrite.source_id == rewrite.source_id), None)
        if known is not None or time.monotonic() >= self.limits.deadline:
            return known
        self._trials += 1
        (found,) = self.attempt([rewrite])
        if found.time_us is None:
            return None
        node = Node(len(self._nodes), draft, rewrite, found.time_us, 0)
        self._nodes.append(node)
        return node


def remade(
    root: Draft, steps: Sequence[Step], offered: Sequence[Transformation] = TRANSFORMATIONS
) -> Draft:
    """A draft made of these steps anew. Raises NotUnderstood where one of them cannot be."""
    by_name = {one.name: one for one in offered}
    draft = root
    for step in steps:
        focused = replace(draft, focus=_launch_of(draft, step.kernel))
        draft = _applied(draft, focused, step.kernel, by_name[step.name], step.setting)
    return draft


def _key(name: str, setting: Setting, kernel: str) -> _Key:
    return _Key(name, repr(sorted(setting.items())), kernel)


def _applied(
    draft: Draft, focused: Draft, kernel: str, one: Transformation, setting: Setting
) -> Draft:
    """A step at the launch that `focused` is at; the focus comes back to where `draft` has it.
    Raises NotUnderstood."""
    made = one.apply(focused, setting)
    last = replace(made.steps[-1], kernel=kernel)
    home = made.focus
    if kernel:
        more = len(made.launches) - len(draft.launches)
        home = draft.focus + (more if focused.focus < draft.focus else 0)
    return replace(made, steps=(*made.steps[:-1], last), focus=home)


def _launch_of(draft: Draft, kernel: str) -> int:
    """The launch that a step was made at. Raises NotUnderstood."""
    names = [launch.kernel for launch in draft.launches]
    if not kernel:
        return draft.focus
    if kernel not in names:
        raise NotUnderstood(f"no launch of {kernel}")
    return names.index(kernel)


def spelled(steps: Sequence[Step]) -> str:
    """Steps in order, with their settings, and the kernel where it is not the first one's."""
    return " > ".join(map(_one_spelled, steps))


def _one_spelled(step: Step) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in step.setting.items())
    where = f" in {step.kernel}" if step.kernel else ""
    return f"{step.name}{where} ({settings})" if settings else f"{step.name}{where}"
