"""Rules with correlations: the steps of a query of both, and alerts over batches of events."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from eddyline.errors import EddylineWarning, QueryError
from eddyline.query.steps import ReadStep
from eddyline.registry import checked_text
from eddyline.rules.store import RuleStep
from eddyline.spark.analysis import column_types
from eddyline.spark.query import Query
from eddyline.spark.relation import checked_frame, checked_relation
from eddyline.spark.rules.correlations import ALERTS, Correlating
from eddyline.spark.rules.named_rules import NamedRules
from eddyline.spark.rules.operator import MAX_LINES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from eddyline.options import SharingOptions
    from eddyline.query.steps import Step
    from eddyline.spark.operator import Site
    from eddyline.spark.rules.binding import RuleBinder
    from eddyline.spark.rules.operator import RuleOperator

RENAME = "el.RuleSet(…, name='…') or el.sigma.load(…, name='…')"
"""The ways to give a set another name."""


class RulesWithAlerts(NamedRules):
    """Named rules, and the alerts of their correlations."""

    options: SharingOptions
    on_error: str
    _binder: RuleBinder

    @property
    def notes(self) -> tuple[str, ...]:
        """The correlations in words, the first of many."""
        found = [
            f"correlation {name}: {each.get('type')} {each.get('condition')} of "
            f"{', '.join(each.get('rules') or ())} in {each.get('timespan')}"
            for name, each in islice(self.correlations.items(), MAX_LINES)
        ]
        rest = len(self.correlations) - MAX_LINES
        return (*found, *([f"{rest:,} more correlations"] if rest > 0 else []))

    @abstractmethod
    def operator(self, step: RuleStep, site: Site) -> RuleOperator:
        """Return the operator of a query's step with these rules."""

    def alerts(self, time: str) -> Callable[[DataFrame], DataFrame]:
        """Return a transform of batches of events to the alerts of the set's correlations.

        Its columns are ``id title level type group first last events value``; see
        ``docs/sigma.md``. Correlations that do not run are listed in ``skipped``. On a stream,
        ``start`` gives alerts.

        Args:
            time: the event-time column.

        Raises:
            QueryError: there is no such column, or no correlation that runs; or on a stream.
        """
        checked_text("time of events", time)

        def transform(df: DataFrame) -> DataFrame:
            found = self.with_alerts(df, time)
            if ALERTS not in found.columns:
                msg = f"{self.name}: no correlation runs over these events; see .skipped of the set"
                raise QueryError(msg, rules=self.name)
            return found.where(f"{ALERTS} IS NOT NULL").select(f"{ALERTS}.*")

        return transform

    def with_alerts(
        self, df: DataFrame, time: str, *, column: str = "matches", keep_unmatched: bool = False
    ) -> DataFrame:
        """Return a batch of events with their rules, and alerts: what ``start`` gives of a stream.

        Arguments are as for ``start``. Where no correlation runs, there is no column of alerts.

        Raises:
            QueryError: there is no such time column, or on a stream.
        """
        if checked_frame("the input of rules", df).isStreaming:
            msg = "alerts of a stream come of rules.start(stream, …, time='…')"
            raise QueryError(msg, rules=self.name)
        shape = {"column": column, "keep_unmatched": keep_unmatched, "as_struct": False}
        relation = checked_relation("the events of rules", df, time, None)
        steps = (ReadStep("events", "events"), *self.steps("events", df, time, **shape))
        return Query(self.name, "", steps, {"events": relation}, {}, rename=RENAME).to_df()

    def steps(self, input: str, df: DataFrame, time: str | None, **shape: Any) -> tuple[Step, ...]:
        """Return the steps of a query of these rules, and of the correlations that run.

        Args:
            input: the relation.
            df: its rows.
            time: their event-time column; None if they have none.
            **shape: ``column``, ``keep_unmatched`` and ``as_struct`` of the step.

        Raises:
            QueryError: ``on_error="raise"`` and a correlation does not run, or the rows have a
                column of the name that alerts are told in.
        """
        step = RuleStep(input, self, **shape)
        if not self.correlated.sources:
            return (step,)
        columns, is_timed = column_types(df), time is not None
        found = self.correlated.bound(columns, has_time=is_timed, why_not=self._why_not(df))
        self._tell_unfit()
        if not found or time is None:
            return (step,)
        return Correlating(found, columns, time, replace(step, output=f"rules of {input}")).steps()

    def _why_not(self, df: DataFrame) -> Callable[[str], str | None]:
        """Return what says of a rule why it does not run over an input, or None."""
        sources = self.store.now()[1]
        bound = self._binder.bind(df, sources.values(), skips=True)
        unfit = {each.name: each for each in (*self.store.skipped({}, ()), *bound.skipped)}

        def why_not(name: str) -> str | None:
            if name in unfit:
                return f"it refers to {name!r}, which does not run: {unfit[name].reason}"
            return None if name in sources else f"it refers to {name!r}, which is not in the set"

        return why_not

    def _tell_unfit(self) -> None:
        """Warn of correlations that do not run, or raise if they must."""
        unfit = self.correlated.unfit
        if not unfit:
            return
        n = len(unfit)
        msg = (
            f"{n} correlation{'' if n == 1 else 's'} of {self.name!r} {'does' if n == 1 else 'do'} "
            f"not run; see .skipped of the set. The first: {unfit[0].name}: {unfit[0].reason}"
        )
        if self.on_error == "raise":
            raise QueryError(msg, rules=self.name)
        warnings.warn(msg, EddylineWarning, stacklevel=4)
