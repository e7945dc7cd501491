"""``el.all_of``: a conjunction as a DataFrame transform that learns its own order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

from eddyline.errors import QueryError, told_in_short
from eddyline.filters.loop import check_options
from eddyline.options import FilterOptions
from eddyline.query.predicates import as_predicate, named
from eddyline.registry import checked_text
from eddyline.report import filters as words
from eddyline.report.html import fragment
from eddyline.report.sections import arranged
from eddyline.report.terminal import explain
from eddyline.spark.filters.binding import ColumnPredicate, as_text, bind_to, fits
from eddyline.spark.filters.operator import FilterOperator
from eddyline.spark.filters.parts import ArrowPart, NativePart
from eddyline.spark.operator import Batch
from eddyline.spark.relation import checked_frame
from eddyline.spark.run.observations import WAIT_S, JobReports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.filters.loop import FilterView
    from eddyline.query.predicates import Predicate

MAX_HANDED_OVER = 4
"""Attributes that a job hands over to its workers on the chance that one tells classes apart. (The
engine hands over more, and stops when none does.)"""

SETTINGS = ("spark.sql.ansi.enabled", "spark.sql.caseSensitive")
"""Settings of the session on which it depends what a predicate means and whether it can raise."""


class Conjunction:
    """A conjunction of predicates; made by ``el.all_of``.

    Call it on a DataFrame, or hand it to ``DataFrame.transform``: batch or streaming, with any
    sink, and inside ``foreachBatch``. What it learns on one DataFrame it uses on the next.
    """

    def __init__(
        self, predicates: Sequence[Predicate | ColumnPredicate], options: FilterOptions, name: str
    ) -> None:
        self.predicates = tuple(predicates)
        self.options = options
        self.name = name
        self._reports = JobReports()
        self._operator: FilterOperator | None = None
        self._columns: list[tuple[str, str]] = []

    def __call__(self, df: DataFrame) -> DataFrame:
        """Return the rows on which every predicate is true.

        Args:
            df: a batch or streaming DataFrame with the columns that the predicates read.

        Raises:
            QueryError: a predicate does not fit the columns; the message names it.
        """
        checked_frame("the input of a filter", df)
        self._reports.learn(0.0)
        operator = self._bound_to(df)
        if df.isStreaming:
            return self._apply_streaming(df, operator)
        if self.options.read_sample:
            operator.read_sample(df)
        else:
            note = (
                "read_sample=False: nothing is known before the job, so the order stands as written"
            )
            native = [name for name, p in operator.learning.items() if isinstance(p, NativePart)]
            operator.notes |= dict.fromkeys(native, note)
        operator.label_texts(df)
        return self._laid(df, operator)

    def _laid(self, df: DataFrame, operator: FilterOperator) -> DataFrame:
        return self._reports.lay(
            df, operator, lambda observation: operator.lay(df, Batch(), observation=observation)
        )

    def explain(self, *, width: int = 100) -> str:
        """Return the order in force and why, in words.

        Args:
            width: columns of the text.
        """
        view = self.facts()
        sections = arranged(words.sections(view, self._reports.history()))
        return explain(view.name, sections, width=width)

    def _repr_html_(self) -> str:
        """Return the explanation for notebooks; the predicates before there is one."""
        if self._operator is None:
            return fragment(self.name, [], steps=[predicate.text for predicate in self.predicates])
        return fragment(self.name, words.sections(self.facts(), self._reports.history()))

    def facts(self) -> FilterView:
        """Return the order in force and why, as values.

        Raises:
            QueryError: the conjunction was not applied to any DataFrame yet.
        """
        self._reports.learn(WAIT_S)
        if self._operator is None:
            msg = f"{self.name}: not applied to a DataFrame yet; use df.transform(…) first"
            raise QueryError(msg, name=self.name)
        return self._operator.facts()

    @property
    def journal(self) -> list[dict[str, Any]]:
        """Every decision so far, as rows."""
        self._reports.learn(WAIT_S)
        return self._reports.rows()

    def __reduce__(self) -> tuple[Any, ...]:
        # What was learned stays: it belongs to jobs of this process.
        return Conjunction, (self.predicates, self.options, self.name)

    def __repr__(self) -> str:
        return f"all_of({', '.join(repr(predicate.text) for predicate in self.predicates)})"

    def _bound_to(self, df: DataFrame) -> FilterOperator:
        """Return the operator for the DataFrame; other columns or settings start afresh."""
        conf = df.sparkSession.conf
        columns = [*df.dtypes, *((setting, str(conf.get(setting, None))) for setting in SETTINGS)]
        operator = self._operator if columns == self._columns else None
        if operator is None or not fits(df, operator.bound, self.options):
            texts = named(as_text(df, predicate) for predicate in self.predicates)
            bound = bind_to(df, texts, self.options)
            operator = self._operator = FilterOperator(
                bound, self.options, self.name, max_handed_over=MAX_HANDED_OVER
            )
            self._columns = columns
            self._reports.forget()
        return operator

    def _apply_streaming(self, df: DataFrame, operator: FilterOperator) -> DataFrame:
        """A streaming plan is laid once: native predicates stand, tasks adapt, progress reports."""
        for component, part in operator.learning.items():
            if isinstance(part, NativePart) and part.loop.is_adaptive:
                operator.notes[component] = (
                    "the plan of a streaming DataFrame is fixed when it starts, so these stand as "
                    "written; run the query by el.Engine, or transform inside foreachBatch, and "
                    "their order is learned too"
                )
        arrow = [name for name, part in operator.learning.items() if isinstance(part, ArrowPart)]
        routed = [name for name in arrow if operator.learning[name].loop.routes is not None]
        if routed and self.options.route_by is None:
            operator.notes["routes"] = (
                "no class of rows is looked for in a plain streaming DataFrame, whose plan could "
                "not stop handing columns over; name them with route_by, or use el.Engine"
            )
        return self._laid(df, operator)


@told_in_short
def all_of(*predicates: Any, name: str | None = None, **options: Any) -> Conjunction:
    """Keep the rows on which every predicate is true, in an order that is learned.

    Args:
        *predicates: SQL text, columns of Spark's such as ``F.col("a") > 5``, functions made
            predicates by ``el.predicate``, or functions whose arguments are named like the columns
            that they read.
        name: what the conjunction is called in journals and reports.
        **options: see ``eddyline.options.FilterOptions``: ``policy``, ``adaptive``,
            ``sample_prob``, ``max_overhead``, ``routing``, ``read_sample``, ``seed``, …

    Returns:
        A transform: ``df.transform(el.all_of("a > 5", slow_check))``.

    Raises:
        QueryError: no predicates, or something that is none.
        OptionError: an unknown option, or a value out of range.

    Example:
        >>> keep = el.all_of("proto = 'tcp'", "length(payload) > 100")  # doctest: +SKIP
        >>> packets.transform(keep)  # doctest: +SKIP
    """
    if name is not None:
        checked_text("name of a conjunction", name)
    if not predicates:
        msg = 'all_of needs at least one predicate, such as all_of("a > 5")'
        raise QueryError(msg)
    conjuncts = [
        ColumnPredicate(predicate) if isinstance(predicate, Column) else as_predicate(predicate)
        for predicate in predicates
    ]
    chosen = FilterOptions.of(**options)
    check_options(chosen)
    return Conjunction(conjuncts, chosen, name or "all_of")
