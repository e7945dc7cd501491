"""An explanation as a piece of HTML, for notebooks: no script, every text escaped.

Figures are left out: they need a script. Without the packages of the extra ``report`` it is the
text of the terminal.
"""

from __future__ import annotations

import html
from dataclasses import replace
from typing import TYPE_CHECKING

from eddyline.data.plain_json import writable
from eddyline.errors import PluginError
from eddyline.report.html.parts import MAX_ITEMS, MAX_ROWS, templates
from eddyline.report.html.report import NEEDS
from eddyline.report.optional import package
from eddyline.report.sections import Figure, arranged
from eddyline.report.terminal.explain import explain

if TYPE_CHECKING:
    from collections.abc import Sequence

from eddyline.report.sections import Section


def fragment(title: str, sections: Sequence[Section], *, steps: Sequence[str] = ()) -> str:
    """Return an explanation as HTML.

    Args:
        title: name of what is explained.
        sections: the explanation.
        steps: lines of a tree that stand below the title.
    """
    shown = arranged(map(_without_figures, sections))
    try:
        template = templates(package("jinja2", NEEDS)).get_template("fragment.html")
    except PluginError:
        return f"<pre>{html.escape(explain(title, shown, steps=steps))}</pre>"
    made: str = template.render(
        title=title,
        steps=steps,
        leads=[part for each in shown if not each.title for part in each.parts],
        sections=[each for each in shown if each.title],
        max_rows=MAX_ROWS,
        max_items=MAX_ITEMS,
    )
    return writable(made)


def _without_figures(section: Section) -> Section:
    parts = tuple(each for each in section.parts if not isinstance(each, Figure))
    return replace(section, parts=parts)
