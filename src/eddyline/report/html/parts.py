"""The parts of every page: templates that escape each text, figures, and decisions in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.report.formatting import clipped, count, one_line, value_in
from eddyline.report.html.figures import MUTED, Colours, drawn, is_drawing
from eddyline.report.sections import SAME_WORDS, decision_texts
from eddyline.report.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.report.formatting import Wordings
    from eddyline.report.sections import Figure, Section
    from eddyline.runtime.journal import JournalEntry

MAX_ROWS = 30
"""Rows of a table: of more, the rest is a number."""

MAX_ITEMS = 10
"""Items, or lines of a query's text, that are shown without being asked for."""


def templates(jinja2: Any, *packages: str) -> Any:
    """Return the templates of packages, and below them those of this room; all escape every text.

    Args:
        jinja2: the package.
        packages: those that have templates of their own.
    """
    of = [jinja2.PackageLoader(each) for each in (*packages, "eddyline.report.html")]
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader(of),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "is_drawing": is_drawing,
        "kind": lambda part: type(part).__name__,
        "line": one_line,
        "clipped": clipped,
        "title": lambda text: one_line(text)[:1].upper() + one_line(text)[1:],
        "count": count,
        "side": lambda unit: "text" if unit == "text" else "number",
        "cell": lambda value, unit: value_in(unit, value),
    }
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


class Figures:
    """The figures of a page by their names, in the order in which the page asks for them."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self._colours = Colours()

    def add(self, figure: Figure) -> tuple[str, list[tuple[str, int, str]]]:
        """Return the name of a figure on the page, and the meaning of its colours.

        The colours are told for screens that are too narrow for labels on the lines.
        """
        name, slots = f"figure-{len(self.data)}", self._colours.slots_of(figure)
        self.data[name] = drawn(figure, slots)
        is_told, is_whole = len(figure.lines) > 1, is_drawing(figure)
        pairs = zip(figure.lines, slots, strict=True)
        told = (pair for pair in pairs if is_told and (is_whole or pair[1] != MUTED))
        return name, list(dict.fromkeys((line.name, slot, line.mark) for line, slot in told))


def wordings_of(sections: Sequence[Section]) -> Wordings:
    """Return the words of all operators for their decisions."""
    return {key: words for each in sections for key, words in each.wordings.items()}


def told(entry: JournalEntry, wordings: Wordings) -> dict[str, Any]:
    """Return a decision with its plans, its evidence in the words of its operator, and why."""
    before, after, evidence = decision_texts(entry, wordings)
    if before == after:
        before = f"{SAME_WORDS}:" if entry.before is not None else ""
    why = sentence(entry)
    return {"entry": entry, "before": before, "after": after, "evidence": evidence, "why": why}
