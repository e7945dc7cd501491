"""Options of queries, declared once: name, meaning, range, default.

Only a number that a user has a reason to set is an option. Any other number is a constant beside
its use. ``REMOVED`` says what replaces each option of an earlier version.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

from eddyline.errors import OptionError
from eddyline.registry import unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OFF_SWITCH = "EDDYLINE_ADAPTIVE"
"""Environment variable; ``0``, ``false``, ``no`` or ``off`` freezes every order as written."""


FOR_ALL = ("policy", "monitor", "adaptive", "lane", "seed")
"""Options of a query that every operator takes; any other is of the operators that know it."""


def adaptation_is_off() -> bool:
    """Return whether the environment switches all adaptation off."""
    return os.environ.get(OFF_SWITCH, "").strip().lower() in {"0", "false", "no", "off"}


class _Keywords:
    """Options of every kind: dataclasses that check themselves."""

    def __post_init__(self) -> None:
        """Check the fields that are switches, and the lane; a kind checks its others first."""
        for field in fields(self):  # type: ignore[arg-type]
            if field.type == "bool":
                is_switch(self, field.name)
            elif field.name == "lane":
                is_one_of(self, "lane", LANES)

    @classmethod
    def of(cls, **keywords: Any) -> Self:
        """Build options from keywords, with a hint for a name that does not exist.

        Raises:
            OptionError: an unknown name or a value out of range.
        """
        check_names("option", keywords, [field.name for field in fields(cls)])  # type: ignore[arg-type]
        return cls(**keywords)

    @classmethod
    def taken(cls, options: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """Return the options of this kind among those of a query, and what is left for others.

        Raises:
            OptionError: a value out of range.
        """
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        values = {name: value for name, value in options.items() if name in names}
        others = {name: options[name] for name in options if name in FOR_ALL or name not in names}
        return cls(**values), others

    def resolved(self) -> Self:
        """Return the options with the environment's off switch applied.

        The driver asks once, for itself and its workers, whose environment may be another.
        """
        return replace(self, adaptive=self.adaptive and not adaptation_is_off())  # type: ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions(_Keywords):
    """Options by which the order of one conjunction is learned.

    Raises:
        OptionError: a value is out of its range; it says which and what the range is.
    """

    policy: Any = "a_greedy"
    """Ordering policy: a name of ``eddyline.ordering.ORDERING_POLICIES`` or its options object."""
    monitor: Any = "two_sample"
    """Monitor, which tells fresh evidence: ``window``, ``two_sample``, a change detector by name, a
    detector, or the options object of one of them; see ``eddyline.runtime.monitors``."""
    adaptive: bool = True
    """False freezes the order as written and switches profiling off."""
    sample_prob: float = 0.01
    """Most input rows that are profiled ([0, 1]); less where ``max_overhead`` says so."""
    max_overhead: float = 0.01
    """Most work that profiling may add, as a share of the work itself ((0, 1])."""
    routing: bool = True
    """Whether classes of rows may get orders of their own, where that pays."""
    route_by: tuple[str, ...] | None = None
    """Columns, or SQL expressions, one of which may tell classes apart: the one by which routing
    saves most. None: candidates are chosen by their types."""
    read_sample: bool = True
    """Batch inputs: read a bounded sample before the job to order the native predicates."""
    lane: str = "auto"
    """``auto``: tasks of a query may read the Parquet files of a stream themselves, where that is
    faster; ``on``: they do wherever they can, those of a batch DataFrame too; ``off``: Spark reads
    files, hands over rows and writes results."""
    seed: int = 0
    """Chooses the profiled rows; never changes an answer (≥ 0)."""

    def __post_init__(self) -> None:
        in_range(self, "sample_prob", 0.0, 1.0)
        in_range(self, "max_overhead", 1e-6, 1.0)
        in_range(self, "seed", 0, 2**63)
        if self.route_by is not None:
            object.__setattr__(self, "route_by", _names(self.route_by))
        _Keywords.__post_init__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingOptions(_Keywords):
    """Options of a set of rules: its evaluation, and how that is learned.

    Raises:
        OptionError: a value is out of its range; it says which and what the range is.
    """

    method: str = "auto"
    """The way to the rows that may make a rule true: ``auto`` (by measurement), ``witnesses``
    (access predicates), ``blocks`` (bitmaps by attribute), ``every_row``, or ``statement`` (one
    statement of Spark's, where that is possible: few rules, all SQL that never raises)."""
    sequence: str = "macro"
    """The order in which a bitmap block looks at attributes: ``macro``, ``greedy`` (the paper's),
    ``hybrid`` (by region as well) or ``fixed``."""
    adaptive: bool = True
    """False keeps the plan that is made before any row is seen."""
    sample_prob: float = 0.01
    """Share of the rows that every attribute is looked at for ([0, 1])."""
    lane: str = "auto"
    """``auto``: tasks read the Parquet files of a stream while that is faster, and of a batch
    DataFrame in ``count_by_rule()``; ``on``: tasks read files wherever possible; ``off``: Spark
    reads files, hands over rows and writes results."""
    seed: int = 0
    """Chooses the sampled rows; never changes an answer (≥ 0)."""

    def __post_init__(self) -> None:
        in_range(self, "sample_prob", 0.0, 1.0)
        in_range(self, "seed", 0, 2**62)
        is_one_of(self, "method", METHODS)
        is_one_of(self, "sequence", SEQUENCES)
        _Keywords.__post_init__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions(_Keywords):
    """Options of a windowed join: how it is run, and how its plan is learned.

    Raises:
        OptionError: a value is out of its range; it says which and what the range is.
    """

    policy: Any = "a_greedy"
    """Ordering policy of each pipeline, and of conditions over one input; see
    ``FilterOptions.policy``."""
    monitor: Any = "two_sample"
    """Monitor, which tells fresh evidence; see ``FilterOptions.monitor``."""
    adaptive: bool = True
    """False keeps the orders as written, uses no cache, keeps buckets as they were first, and hands
    no table to the rows."""
    buckets: int | None = None
    """Most buckets that rows are cut into; Spark's shuffle partitions if None ([1, 240])."""
    routing: bool | None = None
    """True: classes of the rows of an input may probe the others in orders of their own, where that
    pays; False: neither these nor filters over inputs have classes; None: filters alone may."""
    caches: bool = False
    """Whether joined rows may be kept by key where that saves more than it costs."""
    cache_bytes: int = 64 << 20
    """Most memory for them, per bucket (bytes; ≥ 0)."""
    constraints: Any = False
    """``"exact"`` (or True) learns for how long rows of a window are asked for, and keeps older
    ones, and those that keys say can be in no other result, in a cold tier, where late partners
    still find them; ``"discard"`` drops the older ones, also where there is no window, so that
    results may be missing, and says how many at most; False keeps all of them alike."""
    largest_k_s: float | None = None
    """Largest k (s) of a constraint that is used: partners, or the rows of a cluster, come within k
    of each other; half of the window if None ([0, 1e9])."""
    lane: str = "auto"
    """``auto``: tasks read the Parquet files of the streams while that is faster; ``on``: they do
    wherever they can; ``off``: Spark reads files, hands over rows and writes results."""
    seed: int = 0
    """Chooses the sampled rows; never changes an answer (≥ 0)."""

    def __post_init__(self) -> None:
        if not (isinstance(self.constraints, bool) or self.constraints in (EXACT, DISCARD)):
            msg = (
                f"option 'constraints' is 'exact', 'discard', True or False, "
                f"got {self.constraints!r}"
            )
            raise OptionError(msg, name="constraints", value=self.constraints)
        if self.buckets is not None:
            in_range(self, "buckets", 1, 240)
        if self.routing is not None:
            is_switch(self, "routing")
        if self.largest_k_s is not None:
            in_range(self, "largest_k_s", 0.0, 1e9)
        in_range(self, "cache_bytes", 0, 2**40)
        in_range(self, "seed", 0, 2**62)
        _Keywords.__post_init__(self)

    @property
    def largest_k_us(self) -> int | None:
        """The largest k of a constraint that is used (µs); None: half of the window."""
        return None if self.largest_k_s is None else round(self.largest_k_s * 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateOptions(_Keywords):
    """Options of windowed aggregates: how they are run, and how their plan is learned.

    Raises:
        OptionError: a value is out of its range; it says which and what the range is.
    """

    adaptive: bool = True
    """False aggregates rows before they are shuffled by group, whatever that saves."""
    buckets: int | None = None
    """Parts into which groups are cut; Spark's shuffle partitions if None ([1, 4096])."""
    lane: str = "auto"
    """``auto``: tasks read the Parquet files of a stream while that is faster; ``on``: they do
    wherever they can; ``off``: Spark reads files, hands over rows and writes results."""

    def __post_init__(self) -> None:
        if self.buckets is not None:
            in_range(self, "buckets", 1, 4096)
        _Keywords.__post_init__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmOptions(_Keywords):
    """Options of a set of alarms over a stream: how its plan is learned.

    Raises:
        OptionError: a value is out of its range; it says which and what the range is.
    """

    policy: Any = "a_greedy"
    """Ordering policy of the comparisons of a template; see ``FilterOptions.policy``."""
    monitor: Any = "two_sample"
    """Monitor, which tells fresh evidence; see ``FilterOptions.monitor``."""
    adaptive: bool = True
    """False solves all templates covered, in the order as written, and takes no profile."""
    lane: str = "auto"
    """See ``ModelOptions.lane``."""
    seed: int = 0
    """Chooses what policies draw; never changes an answer (≥ 0)."""

    def __post_init__(self) -> None:
        in_range(self, "seed", 0, 2**63)
        _Keywords.__post_init__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(_Keywords):
    """Options of models of a stream: how it is learned what their joins ask before.

    Raises:
        OptionError: a value is out of its range; it says which and what the range is.
    """

    adaptive: bool = True
    """False has joins ask by samples, and nothing estimated."""
    lane: str = "auto"
    """``auto``: tasks read the Parquet files of a stream while that is faster; ``on``: they do
    wherever they can; ``off``: Spark reads files, hands over rows and writes results. Batch
    DataFrames as in ``el.models.fit``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(_Keywords):
    """Options of a query that runs, whatever its operators are.

    Raises:
        OptionError: a value is out of its range.
    """

    recall: bool = True
    """Whether a plan is taken again, without learning it, where the conditions that it was good for
    come again."""
    watch: Any = None
    """Series of the run that change detectors watch: a name such as ``run.seconds``, several of
    them, or a dict of names and detectors; see ``eddyline.runtime.watch``."""


ADJUSTABLE = {
    "sample_prob": "most rows that are profiled, as a share of the input (0 to 1)",
    "max_overhead": "most work that profiling may add, as a share of the work itself (up to 1)",
    "hysteresis": "a filter must be better than the one before it by 1 / hysteresis (0.001 to 1)",
    "cache_bytes": "most memory for joined rows that are kept, per bucket (bytes)",
    "largest_k_s": "largest bound of a constraint that is used (s); none: half of the window",
}
"""Numeric options that a person may change while a query runs, and their meaning. They change the
work, never the answer."""

REMOVED = {
    "warmup_prob": "a tenth of the rows is profiled until a warm-up ends",
    "min_fill": "a warm-up ends at 100 profile tuples",
    "window_rows": "an order is chosen by the newest 1,000 profile tuples",
    "read_sample_rows": "a sample of 2,000 rows is read",
    "sample_rows": "a set of rules plans from its newest 2,000 sampled rows, and a join looks up "
    "200 new rows of each input, per bucket and batch",
    "review_rows": "the plan of a set of rules is reviewed every 50,000 rows",
    "min_change": "the plan of a set of rules is made again after a change by a tenth",
    "risk": "plans are compared by their expected cost alone",
}
"""Options that are gone, and what is done now instead."""

EXACT, DISCARD = "exact", "discard"
"""Values of ``JoinOptions.constraints``, beside True and False."""

METHODS = ("auto", "witnesses", "blocks", "every_row", "statement")
"""Values of ``SharingOptions.method``."""

LANES = ("auto", "on", "off")
"""Values of the option ``lane`` of every operator."""

SEQUENCES = ("macro", "greedy", "hybrid", "fixed")
"""Values of ``SharingOptions.sequence``."""


def in_range(options: Any, name: str, low: float, high: float) -> None:
    """Check that one field of an options object is a number in [low, high].

    Between whole bounds, given as ints, the number has to be whole too: it counts something.

    Raises:
        OptionError: it is not; the message says which field and what the range is.
    """
    value = getattr(options, name)
    is_count = isinstance(low, int) and isinstance(high, int)
    is_number = isinstance(value, Integral if is_count else Real) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:
        kind = "a whole number" if is_count else "a number"
        msg = f"option {name!r} must be {kind} in [{low}, {high}], got {value!r}"
        raise OptionError(msg, name=name, value=value)


def check_names(kind: str, names: Iterable[str], allowed: list[str]) -> None:
    """Check that options exist, with a hint for a name that does not.

    Raises:
        OptionError: a name is unknown, or of an option that is gone: then it says what is done now.
    """
    for name in names:
        if name in allowed:
            continue
        msg = unknown(kind, name, allowed)
        if name in REMOVED:
            msg = f"option {name!r} is gone: {REMOVED[name]}; leave it out"
        raise OptionError(msg, name=name, known=allowed)


def is_switch(options: Any, name: str) -> None:
    """Check that a field is True or False: a text such as "no" would count as true."""
    value = getattr(options, name)
    if not isinstance(value, bool):
        msg = f"option {name!r} must be True or False, got {value!r}"
        raise OptionError(msg, name=name, value=value)


def is_one_of(options: Any, name: str, allowed: tuple[str, ...]) -> None:
    """Check that a field is one of the texts that it may be."""
    value = getattr(options, name)
    if value not in allowed:
        msg = f"option {name!r} must be one of {', '.join(allowed)}, got {value!r}"
        raise OptionError(msg, name=name, value=value)


def _names(value: Any) -> tuple[str, ...]:
    """Return the names of attributes, which are a list of texts."""
    is_list = isinstance(value, list | tuple)
    if not is_list or not all(isinstance(name, str) and name.strip() for name in value):
        msg = f"option 'route_by' must be a list of columns or SQL expressions, got {value!r}"
        raise OptionError(msg, name="route_by", value=value)
    return tuple(dict.fromkeys(value))
