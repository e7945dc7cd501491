"""Runs to be looked at, without Spark."""

from __future__ import annotations

from dataclasses import replace

from eddyline.errors import QueryError
from eddyline.options import ADJUSTABLE, FilterOptions
from eddyline.report.sections import RunView
from eddyline.runtime.by_hand import Property, RuleList, RuleShown
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import Backlog, BatchRecord, History, OrderRecord
from tests.report.fakes import a_run

TOKEN = "0123456789abcdef0123"


class FakeRun:
    """A run whose batches and end a test decides."""

    place = ""

    def __init__(self, name="attacks", view: RunView | None = None, *, place=""):
        self.name = name
        self.place = place
        self.view = replace(view or a_run(n_batches=30), query=name)
        self.is_over = False
        self.failure = None
        self.n_views = 0
        self.done = []
        self.waits = Backlog(0)

    def backlog(self):
        return self.waits

    def is_running(self):
        return not self.is_over

    def error(self):
        return self.failure

    def records_after(self, batch_id):
        return [each for each in self.view.history.batches if each.batch_id > batch_id]

    def decisions(self):
        return self.view.history.journal

    def phases(self):
        return {}

    def run_view(self):
        self.n_views += 1
        return self.view

    def end(self, failure=None):
        self.is_over, self.failure = True, failure

    def add_batch(self, **changes):
        history = self.view.history
        last = history.batches[-1]
        batch = replace(last, batch_id=last.batch_id + 1, ended_at=last.ended_at + 2.0, **changes)
        self.view = replace(self.view, history=replace(history, batches=(*history.batches, batch)))
        return batch


class SteeredRun(FakeRun):
    """A run that a person may change."""

    def plans(self):
        return {"arrow": ["a", "b"], "native": ["c", "d"]}

    def pin(self, component):
        self.done.append(("pin", component))

    def adapt(self, component):
        self.done.append(("adapt", component))

    def stop(self):
        self.done.append(("stop",))

    def properties(self):
        return [Property("filter s", "sample_prob", 0.01, ADJUSTABLE["sample_prob"])]

    def adjust(self, component, name, value):
        FilterOptions(**{name: value})
        self.done.append(("adjust", component, name, value))

    def rules(self):
        return None

    def change_rules(self, change):
        self.done.append(change)


class FakeRules:
    """Rules by their names; a condition with ``zzz`` does not fit."""

    def __init__(self, texts, follows=""):
        self.texts = dict(texts)
        self.follows = follows

    def found(self, part, most):
        names = [name for name in self.texts if part.lower() in name.lower()]
        shown = [self.rule(name) for name in names[:most]]
        return RuleList("set", shown, len(names), len(self.texts), self.follows, ("1 rule added",))

    def rule(self, name):
        if name not in self.texts:
            msg = f"unknown rule {name!r}"
            raise QueryError(msg)
        return RuleShown(name, self.texts[name], "high", n_rows=100, n_matches=7)

    def check(self, change):
        if "zzz" in change.text:
            msg = "unknown column 'zzz'\n  zzz > 1\n  ^"
            raise QueryError(msg)
        if change.how != "add" and change.mark != self.rule(change.name).mark:
            msg = "it is another one than was shown"
            raise QueryError(msg)


class RunOfRules(SteeredRun):
    """A run with rules that a person may change."""

    def __init__(self, texts, follows="", **how):
        super().__init__("ruled", **how)
        self.of_set = FakeRules(texts, follows)

    def rules(self):
        return self.of_set

    def change_rules(self, change):
        self.of_set.check(change)
        super().change_rules(change)


class FakeRuns:
    """A source of runs."""

    def __init__(self, *runs):
        self.known = list(runs)

    def runs(self):
        return self.known


def a_long_run(n_decisions: int, n_batches: int = 1000) -> RunView:
    """Return a run with so many decisions, spread over its batches."""
    names = ("a", "b")
    orders = [["a", "b"], ["b", "a"]]
    journal = tuple(
        JournalEntry(
            at * n_batches // n_decisions,
            "arrow",
            "order",
            orders[at % 2],
            orders[1 - at % 2],
            {"n_tuples": at},
        )
        for at in range(n_decisions)
    )
    batches = tuple(
        BatchRecord(
            batch_id,
            1000,
            10,
            0.5,
            1_790_000_000.0 + batch_id,
            (OrderRecord("arrow", names, (0, 1), (0.5, 0.1), 100.0, 200.0),),
        )
        for batch_id in range(n_batches)
    )
    return RunView("long", "SELECT 1", history=History(batches, journal))
