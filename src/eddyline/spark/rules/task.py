"""Rules of one set in a Python worker, over Arrow batches.

The compiled rules travel once per worker process (a broadcast where there is one); what a task is
shipped is the plan in force. A worker process keeps rules, plan and evidence between tasks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.arrays import starts_of
from eddyline.data.memory import LastUsed
from eddyline.data.outcomes import seed_of
from eddyline.errors import PredicateError, SourceError
from eddyline.lane.task import FileTask, KeptRows
from eddyline.rules.choice import FIRST_ROWS, RuleChoice
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.plan import SharingProfile
from eddyline.runtime.journal import Decisions, TaskReport
from eddyline.spark.arrow_tasks import gathered, on_last_row, task_ids, with_last

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eddyline.data.arrays import Ints
    from eddyline.options import SharingOptions
    from eddyline.rules.compile.program import Program
    from eddyline.rules.match.matcher import Matches
    from eddyline.rules.plan import SharingPlan

    RuleReport = TaskReport[SharingProfile]

MAX_PROGRAMS = 4
"""Compiled sets that a worker process keeps; the one unused for longest goes first."""

GATHERED_ROWS, GATHERED_BYTES = 16_384, 32 << 20
"""Rows, or bytes of columns, from which on a batch is long enough: a call of 1,183 rules costs some
4 ms, whatever its rows, and a row some 4 µs."""

MAX_GATHERED_PAIRS = 100
"""Pairs of rules with a row up to which batches are gathered: the matches of more take memory."""

MAX_PIECE_BYTES = 1 << 26
"""Most bytes of texts that are evaluated at once: a batch of long texts is cut into pieces."""

MAX_PIECE_PAIRS = 1 << 22
"""Pairs of row and rule that are decided at once, about: each takes some 40 bytes for a while."""

MAX_NAMES_BYTES = 2**31 - 1
"""Most bytes of one Arrow array of texts."""


@dataclass
class _Worker:
    """Things of one compiled set that a worker process keeps."""

    program: Program
    matcher: Matcher
    choices: LastUsed[str, RuleChoice] = field(default_factory=lambda: LastUsed(MAX_PROGRAMS))
    """What plans, by run."""
    is_warm: bool = False

    def warm_up(self, columns: Sequence[pa.Array]) -> None:
        """Match no rows, once: kernels that are loaded by it are in no cost."""
        if not self.is_warm:
            self.matcher.match([column.slice(0, 0) for column in columns], n_rows=0)
            self.is_warm = True


_kept: LastUsed[str, _Worker] = LastUsed(MAX_PROGRAMS)


@dataclass(frozen=True)
class RuleTask:
    """Everything that a task needs to evaluate a set of rules."""

    program_id: str
    """Says which compiled set this is."""
    load: Callable[[], Program]
    """Returns the compiled set; called once per worker process."""
    plan: SharingPlan
    """The driver's plan."""
    is_measured: bool
    """Whether it was made from rows."""
    options: SharingOptions
    run_id: str
    """Identifies the evidence, which a worker shares among the tasks of one run."""
    batch_id: int
    """The micro-batch, or -1 where only the task knows it."""
    name: str
    """Name of the set; part of the seed of every sample."""
    about: pa.StructArray | Literal["names"] | None = "names"
    """What is told of a match: the name of its rule, what an array has at the rule's place in the
    set, or that place (None)."""

    def run(self, batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """Return for each batch the matches of its rows, and on the last row what was observed."""
        described = self.described
        for _, lists, report in self.matched(batches):
            yield _result(with_descriptions(lists, described), report)

    def matched(
        self, batches: Iterator[tuple[pa.Array, ...]]
    ) -> Iterator[tuple[tuple[pa.Array, ...], pa.ListArray, RuleReport | None]]:
        """Yield each batch with the places of its rows' matches; with the last, what was observed.

        Raises:
            PredicateError: a function of a rule raised.
        """
        for columns, all_matches, report in self._evaluated(batches):
            yield columns, pa.concat_arrays([_lists(matches) for matches in all_matches]), report

    def count(self, batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.RecordBatch]:
        """Return, once for all rows, how many each rule is true for, and what was observed.

        A row for each rule that is true for some row, with its name and the count; the last row
        has the report.
        """
        for _, _, report in self._evaluated(batches):
            if report is not None:  # the last
                yield _counts(report, self.names)

    @property
    def names(self) -> pa.StringArray:
        """The names of the rules by their places, in a worker."""
        return pa.array(self._keep().program.names, pa.string())

    @property
    def described(self) -> pa.Array | None:
        """Descriptions of rules by their places, in a worker; None: the places."""
        return self.names if isinstance(self.about, str) else self.about

    def _evaluated(
        self, batches: Iterator[tuple[pa.Array, ...]]
    ) -> Iterator[tuple[tuple[pa.Array, ...], list[Matches], RuleReport | None]]:
        """Yield each batch with its matches, in pieces; with the last, what was observed."""
        try:
            yield from self._matched(batches)
        except PredicateError as error:
            # To who wrote the rule, our frames would only hide what it says.
            raise error.with_traceback(None) from None

    def _matched(
        self, batches: Iterator[tuple[pa.Array, ...]]
    ) -> Iterator[tuple[tuple[pa.Array, ...], list[Matches], RuleReport | None]]:
        partition, attempt, batch_id = task_ids()
        batch_id = batch_id if self.batch_id < 0 else self.batch_id
        seed = seed_of(self.options.seed, self.name, batch_id, partition)
        kept = self._keep()
        choice = kept.choices.get_or_make(self.run_id, lambda: self._choice(kept.program))
        matcher = kept.matcher
        profile, first_row = SharingProfile.empty(kept.program), 0
        decisions = Decisions()

        def least_rows() -> int:
            """Return the rows of the next batch: as it comes while little is known."""
            few_pairs = _pairs_per_row(choice.sharing, profile) <= MAX_GATHERED_PAIRS
            is_known = choice.options.adaptive and not choice.wants_first_rows
            return GATHERED_ROWS if few_pairs and is_known else 1

        for columns, is_last in with_last(gathered(batches, least_rows, GATHERED_BYTES)):
            n_rows = len(columns[0])
            kept.warm_up(columns[: len(kept.program.columns)])
            all_matches: list[Matches] = []
            first = FIRST_ROWS if choice.wants_first_rows else 0
            for low, high in _pieces(columns, first, _pairs_per_row(choice.sharing, profile)):
                matcher.follow(choice.sharing)
                part = [column.slice(low, high - low) for column in columns]
                sample = choice.sample(seed, first_row + low, high - low)
                matches, seen = matcher.match(
                    part[: len(kept.program.columns)],
                    n_rows=high - low,
                    sample=sample,
                    asked_sample=choice.asked_sample(sample),
                )
                all_matches.append(matches)
                decisions.add(choice.step(seen, batch_id))
                profile = profile.merge(seen)
            first_row += n_rows
            report = None
            if is_last:
                report = decisions.report(choice.component, partition, attempt, profile)
            yield columns, all_matches, report

    def _keep(self) -> _Worker:
        def make() -> _Worker:
            program = self.load()
            return _Worker(program, Matcher(program, self.plan))

        return _kept.get_or_make(self.program_id, make)

    def _choice(self, program: Program) -> RuleChoice:
        """Return what plans in a run that begins from the driver's plan."""
        return RuleChoice(program, self.options, plan=self.plan, is_measured=self.is_measured)


def _pieces(
    columns: tuple[pa.Array, ...], first: int, pairs_per_row: float
) -> list[tuple[int, int]]:
    """Return the cuts of a batch, so that no piece takes much memory; ``first`` rows come apart."""
    n_rows = len(columns[0])
    first = min(n_rows, first)
    weight = sum(column.nbytes for column in columns)
    n_pieces = max(
        1, -(-weight // MAX_PIECE_BYTES), math.ceil(pairs_per_row * n_rows / MAX_PIECE_PAIRS)
    )
    bounds = [*([0] if first else []), *np.linspace(first, n_rows, n_pieces + 1).astype(int)]
    cuts = [int(bound) for bound in bounds]
    return [(low, high) for low, high in pairwise(cuts) if low < high]


def _pairs_per_row(plan: SharingPlan, profile: SharingProfile) -> float:
    """Return the rules that a row may meet: all without an access predicate, or as rows did."""
    everywhere = len(plan.access_predicates) - plan.n_accessed - plan.n_blocked
    return max(everywhere, float(profile.candidates.sum()) / max(1, profile.n_rows))


def _lists(matches: Matches) -> pa.ListArray:
    """Return the matches of each row as a list."""
    offsets = starts_of(np.bincount(matches.rows, minlength=matches.n_rows)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(matches.rules, pa.int32()))


def _result(lists: pa.Array, report: RuleReport | None) -> pa.Array:
    reports = on_last_row(len(lists), None if report is None else report.to_bytes())
    return pa.StructArray.from_arrays([lists, reports], ["matches", "report"])


def _counts(report: RuleReport, names: pa.Array) -> pa.RecordBatch:
    counts = report.profile.matches
    rules = np.flatnonzero(counts)
    columns = {
        "rule": _ending(names.take(pa.array(rules)), None),
        "count": _ending(pa.array(counts[rules]), None),
        "report": _ending(pa.nulls(len(rules), pa.binary()), report.to_bytes()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _ending(values: pa.Array, last: bytes | None) -> pa.Array:
    return pa.concat_arrays([values, pa.array([last], values.type)])


class Keep(Enum):
    """The rows that are kept."""

    MATCHED = "some rule is true"
    UNMATCHED = "no rule is true"
    EVERY = "all"


@dataclass(frozen=True)
class FileRules(FileTask):
    """Rules whose tasks read the files themselves; see ``lane.task``."""

    rules: RuleTask
    keep: Keep

    def outcomes(self, blocks: Iterator[tuple[pa.Array, ...]]) -> Iterator[KeptRows]:
        """Yield which rows are kept.

        Raises:
            PredicateError: a function of a rule raised.
        """
        described = self.rules.described
        for columns, lists, report in self.rules.matched(blocks):
            keep = np.ones(len(lists), np.bool_)
            if self.keep != Keep.EVERY:
                is_matched = pc.list_value_length(lists).to_numpy() > 0
                keep = is_matched == (self.keep == Keep.MATCHED)
            packed = None if report is None else report.to_bytes()
            yield KeptRows(columns, keep, partial(self._matches, lists, described), packed)

    def _matches(
        self, lists: pa.ListArray, described: pa.Array | None, rows: Ints
    ) -> list[pa.Array]:
        return [with_descriptions(lists.take(pa.array(rows)), described)] if self.added else []


def with_descriptions(lists: pa.ListArray, described: pa.Array | None) -> pa.ListArray:
    """Replace places of rules by what is told of the rules: names, or ids, titles and levels.

    Raises:
        SourceError: the texts exceed an Arrow array.
    """
    if described is None:
        return lists
    if len(lists.values) * described.nbytes > MAX_NAMES_BYTES:
        is_struct = pa.types.is_struct(described.type)
        for array in described.flatten() if is_struct else [described]:
            n_bytes = pc.sum(pc.binary_length(array).take(lists.values)).as_py() or 0
            if n_bytes > MAX_NAMES_BYTES:
                what = "ids, titles or levels" if is_struct else "names"
                raise _exceeding(what, len(lists.values), len(lists), n_bytes)
    return pa.ListArray.from_arrays(lists.offsets, described.take(lists.values))


def _exceeding(what: str, n_matches: int, n_rows: int, n_bytes: int) -> SourceError:
    msg = (
        f"{what} of the {n_matches:,} matches of a batch of {n_rows:,} rows take {n_bytes:,} "
        f"bytes, and an Arrow array holds {MAX_NAMES_BYTES:,}; lower "
        f"spark.sql.execution.arrow.maxRecordsPerBatch"
    )
    return SourceError(msg, matches=n_matches, rows=n_rows)
