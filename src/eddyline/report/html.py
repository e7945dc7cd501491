"""A run as HTML: a report in one file, and notebook output.

``write_report`` writes one file that needs no network and is readable in light and in dark.
``write_reports`` writes several runs beside each other. ``fragment`` is an explanation without
figures, which need a script; without the packages of the extra ``report`` it is the text of the
terminal. ``templates`` and ``wordings_of`` serve the page (``serve/``), too.

Templates escape every text, and a report forbids itself to load anything.
"""

from __future__ import annotations

import html
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddyline.data.files import writable
from eddyline.errors import PluginError, SourceError
from eddyline.registry import package
from eddyline.report.decisions import told
from eddyline.report.figures import MAX_MARKS, Figures, is_drawing
from eddyline.report.formatting import clipped, count, finite, one_line, out_of, ratio, value_in
from eddyline.report.sections import Facts, Figure, Section, Tile, arranged
from eddyline.report.series import left_out, points_of, rate_figure
from eddyline.report.terminal import explain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.report.formatting import Wordings
    from eddyline.report.sections import RunView
    from eddyline.report.series import Point


NEEDS = ("a report", "report")
"""What needs the optional packages, and the extra that has them."""

MAX_ROWS = 30
"""Rows of a table: of more, the rest is a number."""

MAX_ITEMS = 10
"""Items, or lines of a query's text, that are shown without being asked for."""

MAX_ENTRIES = 500
"""Most decisions of tasks, and of the driver, on the page: the newest."""


def write_report(view: RunView, path: str | Path) -> Path:
    """Write a run as one self-contained HTML file.

    Args:
        view: the run.
        path: the file to write; missing folders are made.

    Returns:
        The path of the file.

    Raises:
        PluginError: an optional package that makes the page is not installed.
        SourceError: the file cannot be written.
    """
    return _written(Path(path), _page(view))


def write_reports(views: Sequence[RunView], path: str | Path) -> list[Path]:
    """Write several runs as pages beside each other that share one copy of the plotting library.

    Args:
        views: the runs; a single one is written as by ``write_report``.
        path: the page that leads to the others, which have its name and that of their query.

    Returns:
        The paths of all files, the one that was asked for first.

    Raises:
        PluginError: an optional package that makes the pages is not installed.
        SourceError: a file cannot be written.
    """
    first = Path(path)
    if len(views) == 1:
        return [write_report(views[0], first)]
    library = first.with_name(f"{first.stem}-plotly.js")
    files = [first.with_stem(f"{first.stem}-{name}") for name in _file_names(views)]
    pages = [(one_line(view.query), file.name) for view, file in zip(views, files, strict=True)]
    index = templates(package("jinja2", NEEDS)).get_template("index.html").render(pages=pages)
    texts = [_page(view, library.name) for view in views]
    plotly: str = package("plotly.offline", NEEDS).get_plotlyjs()
    contents = zip([first, *files, library], [index, *texts, plotly], strict=True)
    return [_written(file, text) for file, text in contents]


def _file_names(views: Sequence[RunView]) -> list[str]:
    """Return the names of queries as parts of names of files; those that are alike get numbers."""
    plain = [re.sub(r"[^\w.-]+", "_", view.query) for view in views]
    return [
        f"{name}_{plain[:place].count(name) + 1}" if name in plain[:place] else name
        for place, name in enumerate(plain)
    ]


def _written(target: Path, text: str) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(writable(text), encoding="utf-8")
    except OSError as error:
        msg = f"cannot write the report to {str(target)!r}: {error}"
        raise SourceError(msg, path=str(target)) from error
    return target


def check_packages() -> None:
    """Check that a report can be made, before a run that is to have one.

    Raises:
        PluginError: an optional package that makes the page is not installed.
    """
    package("plotly.offline", NEEDS)
    package("jinja2", NEEDS)


def _page(view: RunView, plotly_file: str = "") -> str:
    """Return a page; it has the plotting library in it, unless there is a file of it beside it."""
    plotly, jinja2 = package("plotly.offline", NEEDS), package("jinja2", NEEDS)
    points, marks = points_of(view.history.batches), _marks(view.sections)
    speed = [Section("work", (rate_figure(points, marks),))] if points else []
    sections = arranged((*view.sections, *speed))
    notes = left_out(points)
    if 0 < len(marks) <= MAX_MARKS:
        notes.append("Dotted lines in figures mark the batches at which a plan changed.")
    page: str = (
        templates(jinja2)
        .get_template("page.html")
        .render(
            view=view,
            when=_when(view),
            tiles=[*_tiles(points), *(tile for section in sections for tile in section.tiles)],
            notes=notes,
            settings=settings_section(view.settings),
            of_driver=_journal(view, of_tasks=False),
            of_tasks=_journal(view, of_tasks=True),
            figures=Figures(),
            plotly_file=plotly_file,
            plotly_js="" if plotly_file else plotly.get_plotlyjs(),
            **leads_and_sections(sections),
        )
    )
    return page


def leads_and_sections(sections: Sequence[Section]) -> dict[str, Any]:
    """Return what leads an explanation, and its sections with titles, for a template."""
    return {
        "leads": [part for section in sections if not section.title for part in section.parts],
        "sections": [section for section in sections if section.title],
    }


def settings_section(settings: Mapping[str, str], *, is_aside: bool = False) -> Section | None:
    """Return the options of a query, if it has any."""
    pairs = tuple((str(name), str(value)) for name, value in settings.items())
    return Section("settings", (Facts(pairs),), is_aside=is_aside) if pairs else None


def _when(view: RunView) -> str:
    ended_batches = [
        batch for batch in view.history.batches if (finite(batch.ended_at) or 0.0) > 0.0
    ]
    if not ended_batches:
        return ""
    began = ended_batches[0].began_at
    first, last = (
        datetime.fromtimestamp(seconds, UTC) for seconds in (began, ended_batches[-1].ended_at)
    )
    if first == last:
        return f", {first:%Y-%m-%d %H:%M:%S} UTC"
    until = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    return f", {first:%Y-%m-%d %H:%M:%S} to {until} UTC"


def _tiles(points: Sequence[Point]) -> list[Tile]:
    """Return the numbers of every run."""
    if not points:
        return []
    n_rows = sum(point.n_rows for point in points)
    n_kept = sum(batch.n_kept for point in points for batch in point.batches)
    seconds = sum(point.seconds for point in points)
    return [
        Tile("Batches", sum(point.n_batches for point in points), "count"),
        Tile("Rows in", n_rows, "count", f"{count(ratio(n_rows, seconds))} per second"),
        Tile("Rows out", n_kept, "count", out_of(n_kept, n_rows)),
        Tile("Time in batches", 1e9 * seconds, "ns"),
    ]


def _marks(sections: Sequence[Section]) -> tuple[int, ...]:
    """Return the batches at which any plan changed."""
    figures = (part for section in sections for part in section.parts if isinstance(part, Figure))
    return tuple(sorted({mark for figure in figures for mark in figure.marks}))


def _journal(view: RunView, *, of_tasks: bool) -> dict[str, Any]:
    """Return the newest decisions of tasks or of the driver, in the words of their operators."""
    entries = [entry for entry in view.history.journal if entry.is_of_task == of_tasks]
    words = wordings_of(view.sections)
    return {
        "rows": [told(entry, words) for entry in reversed(entries[-MAX_ENTRIES:])],
        "n": len(entries),
    }


def fragment(title: str, sections: Sequence[Section], *, steps: Sequence[str] = ()) -> str:
    """Return an explanation as HTML.

    Args:
        title: name of what is explained.
        sections: the explanation.
        steps: lines of a tree that stand below the title.
    """
    shown = arranged(
        replace(
            section, parts=tuple(part for part in section.parts if not isinstance(part, Figure))
        )
        for section in sections
    )
    try:
        template = templates(package("jinja2", NEEDS)).get_template("fragment.html")
    except PluginError:
        return f"<pre>{html.escape(explain(title, shown, steps=steps))}</pre>"
    return writable(template.render(title=title, steps=steps, **leads_and_sections(shown)))


def templates(jinja2: Any, *packages: str) -> Any:
    """Return the templates of packages, and below them those of this room; all escape every text.

    Args:
        jinja2: the package.
        packages: those that have templates of their own.
    """
    loaders = [jinja2.PackageLoader(name) for name in (*packages, "eddyline.report")]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "is_drawing": is_drawing,
        "kind": lambda part: type(part).__name__,
        "line": one_line,
        "clipped": clipped,
        "title": lambda text: one_line(text)[:1].upper() + one_line(text)[1:],
        "count": count,
        "side": lambda unit: "text" if unit == "text" else "number",
        "cell": lambda value, unit: value_in(unit, value),
    }
    environment.globals |= {"max_rows": MAX_ROWS, "max_items": MAX_ITEMS}
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def wordings_of(sections: Sequence[Section]) -> Wordings:
    """Return the words of all operators for their decisions."""
    return {key: words for section in sections for key, words in section.wordings.items()}
