"""Two situations in turn, for each kind of operator that plans: what the log of plans brings.

Batches are drawn, and their work is counted by what each plan would do with their rows: nothing is
timed. Filters, which also learn within a batch, are in ``recurring``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from benchmarks.alarms.adaptive import TEMPLATES
from benchmarks.alarms.data import program_over, segments_of
from benchmarks.alarms.prices import observed, priced
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median
from eddyline.aggregates.loop import REDUCED, AggregateLoop
from eddyline.aggregates.plan import AggregateProfile
from eddyline.alarms.loop import AlarmLoop
from eddyline.alarms.plan import fixed_plans, from_plain
from eddyline.constraints.bounds import bins_of
from eddyline.joins.graph import JoinGraph
from eddyline.joins.grid import GridChoice, busiest, chosen_grid
from eddyline.joins.plan import MATCHED, AgeCounts, DoneCounts
from eddyline.joins.tiers import DoneChoice, TierChoice
from eddyline.models.segments import Segments
from eddyline.options import AlarmOptions, SharingOptions
from eddyline.query.conditions import And, Compare, Operand, Rule
from eddyline.rules.choice import RuleChoice
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.access_predicates import PAIR_NS, WALK_NS
from eddyline.rules.planning.planner import plan_from
from eddyline.runtime.choice import Choice
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.plan_log import PlanLog
from eddyline.sql.types import INT
from eddyline.state.grid import N_BINS, Bins
from eddyline.state.grid import bins_of as hash_bins

N_BATCHES, N_PHASES = 20, 6
"""Batches for which a situation holds, and how often one begins."""


class Kind(Protocol):
    """An operator that plans; its batches are of one of two situations."""

    @property
    def target(self) -> Choice:
        """Its plan, as the log sees it."""
        ...

    def draw(self, rng: np.random.Generator, situation: int) -> Any:
        """Return a batch."""
        ...

    def work(self, batch: Any, plan: Any) -> float:
        """Return what a plan has to do for a batch."""
        ...

    def best(self, batch: Any) -> float:
        """Return what the best plan has to do for it."""
        ...

    def learn(self, batch: Any, number: int) -> list[JournalEntry]:
        """Let the loop take in the batch, run by the plan in force."""
        ...


class Aggregates:
    """10,000 rows of a few groups, or of nearly as many as rows; not answered by the driver."""

    def __init__(self) -> None:
        self.target = AggregateLoop(plans=("early", "late"))

    def draw(self, rng: np.random.Generator, situation: int) -> AggregateProfile:
        """Return a batch of a situation."""
        n_cells = len(np.unique(rng.integers(0, (20, 100_000)[situation], 10_000)))
        return AggregateProfile(10_000, n_cells)

    def work(self, batch: AggregateProfile, plan: str) -> float:
        """Return what a plan has to do for a batch."""
        early = REDUCED * batch.n_rows + (1 + REDUCED) * batch.n_cells
        return early if plan == "early" else (1 + REDUCED) * batch.n_rows

    def best(self, batch: AggregateProfile) -> float:
        """Return what the best plan has to do for it."""
        return min(self.work(batch, plan) for plan in self.target.plans)

    def learn(self, batch: AggregateProfile, number: int) -> list[JournalEntry]:
        """Let the loop take in a batch."""
        return self.target.step(batch, number)


N_RULES = 40
COLUMNS = tuple(Operand(f"`{name}`", INT, (name,)) for name in "ab")
PROGRAM = compile_rules(
    [Rule(f"r{k}", And(tuple(Compare(each, "=", k) for each in COLUMNS))) for k in range(N_RULES)]
)


class Rules:
    """40 rules of two columns, one of which has 4,000 values; a tenth of 2,000 rows is sampled."""

    def __init__(self) -> None:
        options = SharingOptions(method="witnesses", sample_prob=0.1)
        self.loop = RuleChoice(
            PROGRAM, options, logged_as="tens", sample_rows=1_000, review_rows=10_000
        )
        self.matcher = Matcher(PROGRAM, self.loop.sharing)
        self._n = 0

    @property
    def target(self) -> Choice:
        """Its plan, as the log sees it."""
        return self.loop

    def draw(self, rng: np.random.Generator, situation: int) -> tuple[list[pa.Array], int]:
        """Return a batch of a situation."""
        sizes = (4_000, N_RULES) if situation else (N_RULES, 4_000)
        columns = [pa.array(rng.integers(0, n, 2_000), pa.int32()) for n in sizes]
        if PROGRAM.columns[0] != COLUMNS[0].sql:
            columns.reverse()
        return columns, 2_000

    def work(self, batch: tuple[list[pa.Array], int], plan: Any) -> float:
        """Return what a plan has to do for a batch."""
        columns, n_rows = batch
        matcher = Matcher(PROGRAM, plan_from(plan, self.loop.blocks))
        _, seen = matcher.match(columns, n_rows=n_rows, sample=np.zeros(0, np.int64))
        return float(seen.candidates.sum()) * PAIR_NS + n_rows * len(COLUMNS) * WALK_NS

    def best(self, batch: tuple[list[pa.Array], int]) -> float:
        """Return what the best plan has to do for it."""
        columns, n_rows = batch
        found = [int((np.asarray(each) < N_RULES).sum()) for each in columns]
        return min(found) * PAIR_NS + n_rows * len(COLUMNS) * WALK_NS

    def learn(self, batch: tuple[list[pa.Array], int], number: int) -> list[JournalEntry]:
        """Let the loop take in a batch."""
        columns, n_rows = batch
        self.matcher.follow(self.loop.sharing)
        sample = self.loop.sample(7, self._n, n_rows)
        _, seen = self.matcher.match(columns, n_rows=n_rows, sample=sample)
        self._n += n_rows
        return self.loop.step(replace(seen, evaluation_ns=10**9), number)


class Alarms:
    """Three alarms of two comparisons; 2,000 segments, whose signals change places."""

    def __init__(self) -> None:
        self._n = 0
        segments = self.draw(np.random.default_rng(0), 0)
        self.program = program_over(segments, TEMPLATES["three"])
        (self.template,) = self.program.templates
        self.loop = AlarmLoop(AlarmOptions(), self.program)

    @property
    def target(self) -> Choice:
        """Its plan, as the log sees it."""
        return self.loop

    def draw(self, rng: np.random.Generator, situation: int) -> Segments:
        """Return a batch of a situation."""
        one, other = (
            np.stack([rng.normal(0, 1, 2_000), rng.normal(0, 0.02, 2_000)], axis=1) for _ in "xy"
        )
        if situation:
            one[:, 0], other[:, 0] = one[:, 0] + 5, other[:, 0] - 5
        return segments_of({"x": one, "y": other})

    def work(self, batch: Segments, plan: Any) -> float:
        """Return what a plan has to do for a batch."""
        own = from_plain(plan[self.template.text], self.template)
        assert own is not None
        return priced(self.program, batch, {self.template.text: own})

    def best(self, batch: Segments) -> float:
        """Return what the best plan has to do for it."""
        plans = fixed_plans(self.template)
        return min(priced(self.program, batch, {self.template.text: each}) for each in plans)

    def learn(self, batch: Segments, number: int) -> list[JournalEntry]:
        """Let the loop take in a batch."""
        samples = self.loop.wants_sample
        _, profile, _ = observed(self.program, batch, self.loop.template_plans, samples=samples)
        return self.loop.step(profile, number)


LENGTH = 1_000_000_000
"""Length of a window (µs)."""


class Tiers:
    """5,000 pairs of a window, of ages up to a thousandth of its length, or up to a tenth."""

    def __init__(self) -> None:
        self.loop = TierChoice({"s": LENGTH})
        self.target = self.loop

    def draw(self, rng: np.random.Generator, situation: int) -> np.ndarray:
        """Return a batch of a situation."""
        return rng.integers(1, (LENGTH // 1_000, LENGTH // 10)[situation], 5_000)

    def work(self, batch: np.ndarray, plan: Any) -> float:
        """Return what a plan has to do for a batch."""
        span = plan["s"]
        return 1.0 if span is None else span / LENGTH + float((batch > span).mean())

    def best(self, batch: np.ndarray) -> float:
        """Return what the best plan has to do for it."""
        return self.work(batch, {"s": int(batch.max())})

    def learn(self, batch: np.ndarray, number: int) -> list[JournalEntry]:
        """Let the loop take in a batch."""
        numbers, counts = np.unique(bins_of(batch), return_counts=True)
        bins = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        latest = {"s": (number + 9) * LENGTH}
        return self.loop.step({"s": AgeCounts(len(batch), 0, bins)}, latest, number)


@dataclass(frozen=True)
class Matched:
    """1,000 rows of an input, so many of which are done."""

    n_done: int


class Done:
    """1,000 rows, of which 900 are done with their batch, or 20; looking for them takes 1 µs each.

    To merge a row takes 2 µs.
    """

    MERGE_NS, LOOK_NS = 2_000, 1_000

    def __init__(self) -> None:
        self.loop = DoneChoice(MATCHED)
        self.target = self.loop

    def draw(self, rng: np.random.Generator, situation: int) -> Matched:
        """Return a batch of a situation."""
        return Matched(int(rng.binomial(1_000, (0.9, 0.02)[situation])))

    def work(self, batch: Matched, plan: Any) -> float:
        """Return what a plan has to do for a batch."""
        # Of 64,000 hot rows beside 1,000 new ones each row is merged three times.
        return self.LOOK_NS * 1_000 if "p" in plan else batch.n_done * 3 * self.MERGE_NS

    def best(self, batch: Matched) -> float:
        """Return what the best plan has to do for it."""
        return min(self.work(batch, plan) for plan in (["p"], []))

    def learn(self, batch: Matched, number: int) -> list[JournalEntry]:
        """Let the loop take in a batch."""
        is_leaving = "p" in self.loop.leaving
        counts = DoneCounts(1_000, batch.n_done, n_merged=1_000, merge_ns=self.MERGE_NS * 1_000)
        counts.ns = self.LOOK_NS * 1_000 if is_leaving else 0
        return self.loop.step(["p"], {"p": counts}, {"p": 64_000}, 10_000_000, number)


CHAIN = JoinGraph(("r", "s", "t"), (frozenset("rs"), frozenset("st")))


class Cuts:
    """1,000 rows of the middle of a chain, all of which have one key of one class or the other."""

    def __init__(self) -> None:
        self.loop = GridChoice(CHAIN, 4, 4, (), is_adaptive=True)
        self.target = self.loop

    def draw(self, rng: np.random.Generator, situation: int) -> Bins:
        """Return a batch of a situation."""
        found: Bins = {}
        for name, classes in CHAIN.classes_of.items():
            for key in classes:
                codes = rng.integers(0, 2**40, 1_000 if name == "s" else 100)
                if (name, key) == ("s", situation):
                    codes[:] = 13
                found[name, key] = np.bincount(hash_bins(codes), minlength=N_BINS)
        return found

    def work(self, batch: Bins, plan: Any) -> float:
        """Return what a plan has to do for a batch."""
        evidence = [[*key, of.tolist()] for key, of in batch.items()]
        return self.target.cost_of(plan, evidence)

    def best(self, batch: Bins) -> float:
        """Return what the best plan has to do for it."""
        best = chosen_grid(CHAIN, 4, batch, n_tasks=4)
        n_rows = 1_000 + 2 * 100
        return busiest(CHAIN, best, batch, 4) / n_rows

    def learn(self, batch: Bins, number: int) -> list[JournalEntry]:
        """Let the loop take in a batch."""
        return self.loop.step([batch], number)


KINDS: dict[str, Callable[[], Kind]] = {
    "aggregates": Aggregates,
    "rules": Rules,
    "alarms": Alarms,
    "tiers": Tiers,
    "done": Done,
    "cuts": Cuts,
}


@dataclass
class Run:
    """A life of an operator."""

    work: float = 0.0
    """Of the plans that batches ran by."""
    after: list[float] = field(default_factory=list)
    """Work of the plan after the first batch of a recurrence, over the best plan's."""
    n_recalls: int = 0
    n_mistaken: int = 0


def run(kind: Kind, phases: Sequence[int], seed: int, *, recalls: bool) -> Run:
    """Run phases of some situations, with the log of plans recalling or not."""
    rng, log, found = np.random.default_rng([seed, 43]), PlanLog(recalls=recalls), Run()
    number, entries = 0, []
    for at, situation in enumerate(phases):
        for n in range(N_BATCHES):
            target, batch = kind.target, kind.draw(rng, situation)
            plan = target.plan
            found.work += kind.work(batch, plan)
            kind.learn(batch, number)
            targets = {target.component: target}
            entries += log.step(targets, {target.component: plan}, 1_000, number)
            number += 1
            if n == 0 and situation in phases[:at]:
                next_one = kind.draw(rng, situation)
                found.after.append(kind.work(next_one, kind.target.plan) / kind.best(next_one))
    found.n_recalls = sum(each.event == "recall" for each in entries)
    found.n_mistaken = sum(each.event == "mistaken" for each in entries)
    return found


def recurring(settings: Settings, name: str) -> Measurement:
    """Median of what the plan costs after the first batch of a recurrence, over the best plan."""
    lives: dict[bool, list[Run]] = {True: [], False: []}
    for seed in settings.seeds(5, 1):
        for recalls, own in lives.items():
            phases = [at % 2 for at in range(settings.pick(N_PHASES, 4))]
            own.append(run(KINDS[name](), phases, seed, recalls=recalls))
    after = {recalls: [x for each in own for x in each.after] for recalls, own in lives.items()}
    work = {recalls: sum(each.work for each in own) for recalls, own in lives.items()}
    n_recalls = sum(each.n_recalls for each in lives[True])
    n_mistaken = sum(each.n_mistaken for each in lives[True])
    note = (
        f"without the log {median(after[False]):.3f}; greatest {max(after[True]):.3f} and "
        f"{max(after[False]):.3f}; work of all batches over that without "
        f"{work[True] / work[False]:.3f}; {n_recalls} recalled, {n_mistaken} by mistake"
    )
    details = {"with": after[True], "without": after[False], "work": work[True] / work[False]}
    return Measurement(median(after[True]), note, details)


def nothing(settings: Settings) -> Measurement:
    """Work with the log over that without where a situation never changes; greatest."""
    found = {}
    for name, kind in KINDS.items():
        work = {True: 0.0, False: 0.0}
        for seed in settings.seeds(2, 1):
            for situation in (0, 1):
                for recalls in work:
                    phases = [situation] * settings.pick(3, 2)
                    work[recalls] += run(kind(), phases, seed, recalls=recalls).work
        found[name] = work[True] / work[False]
    told = ", ".join(f"{name} {ratio:.4f}" for name, ratio in found.items())
    return Measurement(max(found.values()), told, found)


RUNS: Runs = {
    "recall_aggregates": lambda settings: recurring(settings, "aggregates"),
    "recall_rules": lambda settings: recurring(settings, "rules"),
    "recall_alarms": lambda settings: recurring(settings, "alarms"),
    "recall_tiers": lambda settings: recurring(settings, "tiers"),
    "recall_done": lambda settings: recurring(settings, "done"),
    "recall_cuts": lambda settings: recurring(settings, "cuts"),
    "recall_kinds_nothing": nothing,
}
