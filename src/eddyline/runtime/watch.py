"""Watched series: change detectors on any number of a run.

The option ``watch`` of a query names series and the detector of each. A series is a number of a
component after each batch, as metrics, page and progress have it (``records.Counting``):
``join.n_late``, ``filter order.cost_ns``; or a number of the whole batch, of the component ``run``.
``Watch.observe`` takes a batch and returns an alarm for each series that has changed. Alarms change
no plan: they are entries of the journal.

A pattern without a dot is a name in any component; ``*`` and ``?`` match as in file names. Series
of one pattern that appear in the same batch share a bank, so a batch is one update per pattern.

Detectors of numbers in [0, 1] watch a number x ≥ 0 as x / (x + s), where s is the first value of
the series above 0. So that value is a half, and twice as much is two thirds. Numbers below 0 are 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.change import options_of
from eddyline.data.arrays import pack, unpack
from eddyline.data.learned import restored
from eddyline.errors import OptionError
from eddyline.registry import checked_text
from eddyline.runtime.journal import RUN, JournalEntry
from eddyline.runtime.records import numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eddyline.change.protocol import DetectorOptions
    from eddyline.data.arrays import Floats, Ints
    from eddyline.runtime.records import BatchRecord

DETECTOR = "cusum"
"""Detector of a series that is given without one: it takes any numbers and learns their scale."""

COMPONENT = "watch"

ALARM, UNMATCHED = "alarm", "unmatched"
"""Events of the journal: a series has changed; a pattern is the name of no series."""

_KEPT = 64
"""Newest values of a series that are remembered, to say since when it has changed."""

_PATIENCE = 3
"""Batches after which the journal tells of a pattern that is the name of no series: some numbers
are known only once there is evidence."""

Watched = tuple[str, "DetectorOptions"]
"""A pattern, and the options of its detector."""


def watch_of(spec: Any) -> tuple[Watched, ...]:
    """Return the patterns of an option ``watch``, each with its detector.

    Args:
        spec: a pattern, a sequence of patterns, or a mapping of patterns to detectors (a name, an
            options object, a detector); None for none.

    Raises:
        OptionError: it is none of these, or a detector is unknown.

    >>> watch_of({"run.seconds": "page_hinkley"})[0][0]
    'run.seconds'
    """
    if spec is None:
        return ()
    if isinstance(spec, str):
        spec = (spec,)
    if not isinstance(spec, Mapping | list | tuple):
        msg = "option 'watch' is a name of a series, such as 'run.seconds', several of them, or a "
        msg += f"dict of names and detectors, got {spec!r:.60}"
        raise OptionError(msg, name="watch", value=repr(spec))
    pairs = spec.items() if isinstance(spec, Mapping) else ((name, DETECTOR) for name in spec)
    return tuple(
        (checked_text("name of a watched series", name), options_of(detector))
        for name, detector in pairs
    )


def series_of(batch: BatchRecord) -> dict[str, float]:
    """Return the numbers of a batch by name; those that are not known are left out.

    >>> from eddyline.runtime.records import BatchRecord
    >>> series_of(BatchRecord(0, n_rows=100, n_kept=20, seconds=0.5))
    {'run.n_rows': 100, 'run.n_kept': 20, 'run.seconds': 0.5, 'run.rows_per_s': 200.0}
    """
    numbers = {"n_rows": batch.n_rows, "n_kept": batch.n_kept, "seconds": batch.seconds}
    if batch.seconds > 0.0:
        numbers["rows_per_s"] = batch.n_rows / batch.seconds
    series = {f"{RUN}.{name}": value for name, value in numbers.items()}
    for component, component_numbers in numbers_of(batch.operators, batch.n_rows).items():
        for name, value in {**component_numbers.sums, **component_numbers.levels}.items():
            series[f"{component}.{name}"] = value
    return {name: value for name, value in series.items() if math.isfinite(value)}


class _Saved(msgspec.Struct, forbid_unknown_fields=True):
    """State of a bank."""

    pattern: str
    options: str
    names: tuple[str, ...]
    bank: dict[str, Any]
    recent: str
    batch_ids: str
    scales: str


class _Bank:
    """The detectors of the series of one pattern that appeared in the same batch."""

    def __init__(self, pattern: str, options: DetectorOptions, names: tuple[str, ...]) -> None:
        self.pattern, self.options, self.names = pattern, options, names
        self._bank = options.build(len(names))
        self._is_bounded = getattr(self._bank, "bounds", None) == (0.0, 1.0)
        self._recent: Floats = np.full((len(names), _KEPT), np.nan)
        """Newest values of each series, the newest last."""
        self._batch_ids: Ints = np.full((len(names), _KEPT), -1, dtype=np.int64)
        """The batches that they are of."""
        self._scales: Floats = np.zeros(len(names))
        """First value of each series above 0."""

    def observe(self, batch_id: int, values: Mapping[str, float]) -> Iterator[JournalEntry]:
        """Take in the values of a batch; yield an alarm for each series that has changed."""
        items = np.array([values.get(name, np.nan) for name in self.names])
        rows = np.flatnonzero(~np.isnan(items))
        for kept, newest in ((self._recent, items[rows]), (self._batch_ids, batch_id)):
            kept[rows, :-1] = kept[rows, 1:]
            kept[rows, -1] = newest
        if self._is_bounded:
            items = self._bounded(items)
        for i in np.flatnonzero(self._bank.update(items)):
            n_back = int(self._bank.n_seen[i] - self._bank.change_points[i])
            yield self._alarm(int(i), batch_id, min(n_back, _KEPT))

    def _bounded(self, items: Floats) -> Floats:
        """Return numbers as numbers in [0, 1], in their order."""
        is_first = (self._scales == 0.0) & (items > 0.0)
        self._scales[is_first] = items[is_first]
        above = np.maximum(items, 0.0)
        # Both are halved, because the sum of two numbers near the largest one is infinite.
        halves = above / 2.0 + self._scales / 2.0
        return np.divide(above / 2.0, halves, out=above, where=halves > 0.0)

    def _alarm(self, i: int, batch_id: int, n_back: int) -> JournalEntry:
        recent, detector = self._recent[i], getattr(self._bank, "kind", str(self.options))
        after = recent[_KEPT - max(n_back, 1) :]
        before = recent[: _KEPT - max(n_back, 1)]
        evidence = {
            "series": self.names[i],
            "detector": detector,
            "since_batch": int(self._batch_ids[i, -n_back]) if n_back > 0 else batch_id + 1,
            "value": float(recent[-1]),
            "mean_after": _mean(after),
        }
        if not np.isnan(before).all():
            evidence["mean_before"] = _mean(before)
        return JournalEntry(batch_id, COMPONENT, ALARM, evidence=evidence)

    def saved(self) -> _Saved:
        """Return its state."""
        arrays = (pack(array) for array in (self._recent, self._batch_ids, self._scales))
        return _Saved(self.pattern, repr(self.options), self.names, self._bank.snapshot(), *arrays)

    def restore(self, saved: _Saved) -> None:
        """Continue from a state of the same pattern, detector and names."""
        self._bank.restore(saved.bank)
        self._recent = unpack(saved.recent)
        self._batch_ids = unpack(saved.batch_ids)
        self._scales = unpack(saved.scales)


class _State(msgspec.Struct, forbid_unknown_fields=True):
    """State of a watch."""

    banks: list[_Saved]
    unmatched: list[str]
    n_batches: int


class Watch:
    """The watched series of a run.

    Args:
        watched: patterns with their detectors; see ``watch_of``.
    """

    def __init__(self, watched: Iterable[Watched] = ()) -> None:
        self._options = dict(watched)
        self._banks: list[_Bank] = []
        self._n_batches = 0
        self._unmatched: list[str] = []
        """Patterns that the journal has told of."""

    def observe(self, batch: BatchRecord) -> list[JournalEntry]:
        """Take in what is known of a batch; return the alarms.

        Called once per batch, and not again for a batch that runs again.
        """
        if not self._options:
            return []
        self._n_batches += 1
        values = series_of(batch)
        for pattern, options in self._options.items():
            self._add(pattern, options, values)
        entries = [entry for bank in self._banks for entry in bank.observe(batch.batch_id, values)]
        return entries + list(self._told_unmatched(batch.batch_id, values))

    def _add(self, pattern: str, options: DetectorOptions, values: Mapping[str, float]) -> None:
        """Build detectors of series that are new."""
        names = {name for bank in self._banks if bank.pattern == pattern for name in bank.names}
        new = tuple(name for name in values if name not in names and _matches(name, pattern))
        if new:
            self._banks.append(_Bank(pattern, options, new))

    def _told_unmatched(self, batch_id: int, values: Mapping[str, float]) -> Iterator[JournalEntry]:
        """Yield an entry for each pattern that no series has yet, once."""
        matched = {bank.pattern for bank in self._banks}
        for pattern in self._options:
            is_told = pattern in matched or pattern in self._unmatched
            if not is_told and self._n_batches >= _PATIENCE:
                self._unmatched.append(pattern)
                evidence = {"watch": pattern, "known": sorted(values)}
                yield JournalEntry(batch_id, COMPONENT, UNMATCHED, evidence=evidence)

    def snapshot(self) -> dict[str, Any] | None:
        """Return the state as plain values (JSON); None if nothing is watched."""
        if not self._options:
            return None
        saved = [bank.saved() for bank in self._banks]
        state = _State(saved, self._unmatched, self._n_batches)
        plain: dict[str, Any] = msgspec.to_builtins(state)
        return plain

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned; patterns with another detector start anew.

        Raises:
            StateError: it is damaged.
        """
        saved = restored(state, _State, "watched series")
        self._unmatched = [pattern for pattern in saved.unmatched if pattern in self._options]
        self._n_batches = saved.n_batches
        self._banks = []
        for saved_bank in saved.banks:
            options = self._options.get(saved_bank.pattern)
            if options is not None and repr(options) == saved_bank.options:
                bank = _Bank(saved_bank.pattern, options, saved_bank.names)
                bank.restore(saved_bank)
                self._banks.append(bank)


def _mean(values: Floats) -> float:
    """Return the mean of those that are not nan; their sum may be above the largest number."""
    numbers = values[~np.isnan(values)]
    return float((numbers / len(numbers)).sum())


def _matches(series: str, pattern: str) -> bool:
    """Return whether a pattern names a series.

    >>> _matches("filter order.cost_ns", "cost_ns"), _matches("join.n_late", "join.*")
    (True, True)
    """
    name = series if "." in pattern else series.rpartition(".")[2]
    return fnmatchcase(name, pattern)
