"""Pages: list of queries, one query, its decisions.

Templates escape every text. A page is made of the whole view of a run (``Views``), so its cost
grows with the run. A view is made anew after a batch, but not before the last making was half a
percent of the time since. Looking therefore takes at most half a percent of a processor, however
long the run and however many look. ``Pages`` renders the views.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eddyline.data.files import writable
from eddyline.registry import package
from eddyline.report.decisions import told
from eddyline.report.figures import Figures
from eddyline.report.formatting import IN_FORCE, Wording, plan_text
from eddyline.report.html import leads_and_sections, settings_section, templates, wordings_of
from eddyline.report.sections import Table, arranged, columns, known, without_values
from eddyline.report.series import left_out, points_of, rate_figure
from eddyline.runtime.records import Counting, Numbers
from eddyline.serve.following import is_change
from eddyline.serve.graph import HEIGHT, graph_of, rows_of_box
from eddyline.serve.measures import Effects, cells, health, in_short, spark_line, time_sections
from eddyline.serve.runs import HANDS, Steerable, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.report.decisions import Decision
    from eddyline.report.formatting import Wordings
    from eddyline.report.sections import Figure, RunView, Section, Tile
    from eddyline.report.series import Point
    from eddyline.runtime.by_hand import Property
    from eddyline.runtime.journal import JournalEntry
    from eddyline.serve.following import Followed
    from eddyline.serve.measures import Health


NEEDS = ("the page", "serve")
"""What needs the optional packages, and the extra that has them."""

NEWEST_DECISIONS = 12
"""Decisions beside a query."""

SHOWN_LINES = 8
"""Lines of a query's text that are shown without being asked for."""

DECISIONS_A_PAGE = 100
"""Decisions on a page of their own."""

MAX_QUERIES = 200
"""Queries of the list; of more, those that failed and run come first."""

RANKS = {"bad": 0, "look": 1, "good": 2, "past": 3}
"""The order of the list."""

EVENTS = {
    "adjust": "has another option",
    "adapt": "adapts again",
    "caches": "took other caches",
    "change": "goes on as a changed query",
    "lane": "reads its files in another way",
    "drop_state": "let go of what was learned before",
    "left_out": "counted older decisions only",
    "order": "took another order",
    "pin": "was pinned",
    "place": "does its work in another place",
    "reset": "goes on as a changed query, with empty state",
    "restore": "went on with what was learned before",
    "routes": "tells other classes of rows apart",
    "rules": "were changed",
    "sample": "kept its order: a sample confirmed it",
    "sharing": "shares its work in another way",
    "stale": "let go of evidence",
    "stop": "was stopped",
}
"""What a decision did, by its event; other events stand as operators name them."""

OWN_TILES = {"Late rows"}
"""Names of numbers that the head of every page has."""

PLANS = columns(
    "part, plan in force, rows of batch: count, cost per row: ns, as written: ns, "
    "kept: count, size: bytes"
)

LEVELS = ("cost_ns", "as_written_ns", "n_kept", "n_bytes")
"""What the last columns of ``PLANS`` show of a part, by its names in ``Numbers``."""


@dataclass(frozen=True, slots=True)
class Row:
    """A query of the list."""

    run: Followed
    health: Health
    cells: Mapping[str, str]
    spark: str


class Pages:
    """Renders the pages.

    Args:
        values: whether values of rows are shown.
        controls: whether there are buttons that change a run.
        static: returns the address of a file that the page loads.
    """

    def __init__(self, *, values: bool, controls: bool, static: Any) -> None:
        self.views = Views(values=values)
        self._values = values
        self._controls = controls
        self._templates = templates(package("jinja2", NEEDS), "eddyline.serve")
        self._templates.filters |= {
            "short_effect": in_short,
            "rows_of_box": rows_of_box,
            "in_words": lambda event: EVENTS.get(event, event.replace("_", " ")),
        }
        self._templates.globals |= {
            "static": static,
            "hands": HANDS,
            "box_height": HEIGHT,
        }

    def list(self, runs: Sequence[Followed]) -> str:
        """Return the list of queries, those first that a person should look at."""
        now = time.time()
        rows = [
            Row(run, health(run, now, values=self._values), cells(run), spark_line(run.recent))
            for run in runs
        ]
        rows.sort(key=lambda row: (RANKS[row.health.level], row.run.name))
        n_by_level = {level: sum(row.health.level == level for row in rows) for level in RANKS}
        return self.render(
            "list.html", rows=rows[:MAX_QUERIES], n_runs=len(rows), n_by_level=n_by_level
        )

    def run(self, run: Followed) -> str:
        """Return the page of a query."""
        cached, how = self.views.of(run), health(run, time.time(), values=self._values)
        n_known = run.last_batch if not cached.view.history.batches else 0
        asked = n_known, how.level, run.backlog()
        if cached.page is not None and cached.page[0] == asked:
            return cached.page[1]
        before = self.views.spent()
        text = self._run(run, cached, how)
        cached.cost_s += self.views.spent() - before
        cached.page = asked, text
        return text

    def _run(self, run: Followed, cached: Made, how: Health) -> str:
        view, (of_driver, of_tasks) = cached.view, _parted(cached)
        points = points_of(view.history.batches)
        words = wordings_of(cached.sections)
        has_hands = self._controls and run.is_running
        return self.render(
            "run.html",
            run=run,
            view=view,
            health=how,
            cells=cells(run),
            spark=spark_line(run.recent),
            plans=_plans(run, words),
            graph=graph_of(view, cached.sections, _plans_in_words(run, words)),
            notes=left_out(points),
            n_lines=len(view.text.splitlines()),
            shown_lines=SHOWN_LINES,
            tiles=_tiles(cached.sections),
            rates=_rates(points, view),
            decisions=_decisions(
                cached, of_driver, len(of_driver) - NEWEST_DECISIONS, len(of_driver)
            ),
            n_decisions=len(of_driver),
            n_of_tasks=len(of_tasks),
            settings=settings_section(view.settings, is_aside=True),
            has_hands=has_hands and isinstance(run.run, Steerable),
            has_rules=has_hands and rules_of(run.run) is not None,
            adjustable=_adjustable(run) if has_hands else (),
            figures=Figures(),
            **leads_and_sections(cached.sections),
        )

    def journal(self, run: Followed, page: int, *, of_tasks: bool) -> str | None:
        """Return a page of decisions, the newest first, None if there is no such page.

        Args:
            run: the run.
            page: number of the page, from 1.
            of_tasks: whether decisions of tasks are shown, each for the rows of its partition, and
                not those of the driver.
        """
        cached = self.views.of(run)
        driver, tasks = _parted(cached)
        entries = tasks if of_tasks else driver
        n_pages = max(1, -(-len(entries) // DECISIONS_A_PAGE))
        if not 1 <= page <= n_pages:
            return None
        end = len(entries) - (page - 1) * DECISIONS_A_PAGE
        return self.render(
            "journal.html",
            run=run,
            decisions=_decisions(cached, entries, end - DECISIONS_A_PAGE, end),
            n=len(entries),
            page=page,
            n_pages=n_pages,
            of_tasks=of_tasks,
            n_of_tasks=len(tasks),
            n_of_driver=len(driver),
        )

    def hand(self, run: Followed, name: str) -> str:
        """Return the page that says what a person's hand on a run would do.

        Raises:
            PlanError: the run has no plan that could be another.
        """
        plans: list[tuple[str, str]] = []
        if HANDS[name].is_of_plans and isinstance(run.run, Steerable):
            words = wordings_of(self.views.of(run).sections)
            items = run.run.plans().items()
            plans = [
                (component, _plan_in_words(component, plan, words)) for component, plan in items
            ]
        return self.render("hand.html", run=run, name=name, hand=HANDS[name], plans=plans)

    def options(self, run: Followed, asked: Mapping[str, str] | None = None) -> str:
        """Return the page of the options of a run that a person may change.

        Args:
            run: the run.
            asked: what was typed, and what is wrong with it.
        """
        return self.render("options.html", run=run, found=_adjustable(run), asked=asked or {})

    def problem(self, title: str, text: str) -> str:
        """Return a page that says what is wrong."""
        return self.render("problem.html", title=title, text=text)

    def render(self, template: str, /, **context: Any) -> str:
        """Return a page of a template."""
        return writable(self._templates.get_template(template).render(**context))


def _parted(cached: Made) -> tuple[list[JournalEntry], list[JournalEntry]]:
    """Return the decisions of the driver, and those of tasks."""
    journal = cached.view.history.journal
    driver = [entry for entry in journal if not entry.is_of_task]
    tasks = [entry for entry in journal if entry.is_of_task]
    return driver, tasks


def _decisions(
    cached: Made, entries: Sequence[JournalEntry], start: int, end: int
) -> list[Decision]:
    """Return some decisions in words, with what those of the driver brought, newest first."""
    wordings = wordings_of(cached.sections)
    effects = Effects(cached.view.history.batches, cached.view.history.journal)
    return [
        told(entries[place], wordings, number=place + 1, effect=effects.of(entries[place]))
        for place in reversed(range(max(0, start), end))
    ]


def _plans(run: Followed, wordings: Wordings) -> Table | None:
    """Return what runs under which plan after the newest batch, at which cost, on which state."""
    if not run.recent:
        return None
    newest = run.recent[-1]
    rows = []
    for part in newest.operators:
        numbers = part.numbers(newest.n_rows) if isinstance(part, Counting) else Numbers()
        plan = "" if part.plan is None else _plan_in_words(part.component, part.plan, wordings)
        levels = [numbers.levels.get(name) for name in LEVELS]
        if plan or any(level is not None for level in levels):  # a clock has nothing to show here
            rows.append((part.component, plan, numbers.sums.get("n_rows") or None, *levels))
    table = known(Table(PLANS, tuple(rows)))
    return table if rows and isinstance(table, Table) else None


def _adjustable(run: Followed) -> Sequence[Property]:
    """Return the options of a run that a person may change."""
    return run.run.properties() if isinstance(run.run, Steerable) else ()


def _plans_in_words(run: Followed, wordings: Wordings) -> dict[str, str]:
    """Return the plan in force of each component after the newest batch."""
    parts = run.recent[-1].operators if run.recent else ()
    return {
        part.component: _plan_in_words(part.component, part.plan, wordings)
        for part in parts
        if part.plan is not None
    }


def _plan_in_words(component: str, plan: Any, wordings: Wordings) -> str:
    """Write the plan in force of a component, in the words of its operator if it has any."""
    write = wordings.get((component, IN_FORCE), Wording()).plan or plan_text
    return write(plan)


def _tiles(sections: Sequence[Section]) -> list[Tile]:
    """Return the numbers of the operators that the head of the page does not have already."""
    return [tile for section in sections for tile in section.tiles if tile.name not in OWN_TILES]


def _rates(points: Sequence[Point], view: RunView) -> Figure | None:
    """Return the rows per second over the batches, with the changes of plans marked."""
    if not points:
        return None
    marks = {entry.batch_id + 1 for entry in view.history.journal if is_change(entry)}
    first, last = points[0].batch_id, points[-1].batch_id
    return rate_figure(points, tuple(sorted(mark for mark in marks if first <= mark <= last)))


LEAST_AGE_S = 1.0
"""A view is never made anew earlier (s)."""

SHARE = 0.005
"""Most share of a processor that making and rendering the view of one run takes."""

TRIES = 3
"""How often a view is tried to be made at most."""

ADVICE = "serve(values=True), or --values,"
"""What shows the values of rows."""


@dataclass(slots=True)
class Made:
    """A view, and when and how dearly it was made."""

    view: RunView
    sections: tuple[Section, ...]
    """Its sections, arranged, those of the time of batches included."""
    version: tuple[object, ...]
    """Differs from that of a view of other batches."""
    at: float
    """When it was made (s, of the clock)."""
    cost_s: float
    """Time of a processor that making and rendering it took (s)."""
    page: tuple[tuple[Any, ...], str] | None = None
    """Its newest page, and what else that shows."""

    @property
    def due_at(self) -> float:
        """When it may be made anew (s, of the clock)."""
        return self.at + max(LEAST_AGE_S, self.cost_s / SHARE)


class Views:
    """The newest view of each run that somebody looked at.

    Args:
        values: whether values of rows are shown.
        clock: returns a time (s) that never goes back.
        spent: returns the time of a processor that the thread has taken (s).
    """

    def __init__(
        self,
        *,
        values: bool,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self.values = values
        self.clock = clock
        self.spent = spent
        self._views: dict[str, Made] = {}

    def of(self, run: Followed) -> Made:
        """Return the view of a run: the newest, or one that is not too old to be made anew."""
        version = (id(run.run), run.last_batch, run.state)
        cached = self._views.get(run.key)
        is_due = cached is None or (cached.version != version and self.clock() >= cached.due_at)
        if cached is not None and not is_due:
            return cached
        before = self.spent()
        view = _view(run)
        sections = arranged([*view.sections, *time_sections(run.run.phases())])
        shown = sections if self.values else without_values(sections, ADVICE)
        newest = Made(view, tuple(shown), version, self.clock(), self.spent() - before)
        self._views[run.key] = newest
        return newest

    def forget(self, key: str) -> None:
        """Make the view of a run anew when it is asked for next, such as after a person's hand."""
        self._views.pop(key, None)

    def wait_s(self, run: Followed) -> float:
        """Return how long a page should wait for a newer view (s); 0 if it has the newest."""
        cached = self._views.get(run.key)
        if cached is None or cached.version == (id(run.run), run.last_batch, run.state):
            return 0.0
        return max(0.05, cached.due_at - self.clock())


def _view(run: Followed) -> RunView:
    """Return the view of a run, whose batches may change what it is made of meanwhile."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(RuntimeError):  # such as a dictionary that changed its size
            return run.run.run_view()
    return run.run.run_view()
