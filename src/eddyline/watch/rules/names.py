"""What rules are called where people read of them, and why one does not run."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from eddyline.watch.formatting import clipped, one_line

if TYPE_CHECKING:
    from eddyline.query.conditions import SkippedRule
    from eddyline.rules.view import RuleView

MIN_SHORT = 8
"""Characters that a shortened name has at least."""


def named(view: RuleView, name: str, width: int, *, whole: bool = False) -> str:
    """Return a rule's title with its name behind it; without a title its name.

    Args:
        view: the rules.
        name: of the rule.
        width: most characters of the title with a shortened name, or of a name alone.
        whole: whether the name is written out; else it is shortened as far as no other is like it.
    """
    title = view.label(name)
    if title == name:
        return clipped(name, width)
    if whole:
        return f"{clipped(title, width)} ({one_line(name)})"
    short = one_line(_short(tuple(each.name for each in view.rules)).get(name, name))
    return f"{clipped(title, max(width - len(short) - 3, MIN_SHORT))} ({short})"


def skipped_name(view: RuleView, rule: SkippedRule, width: int) -> str:
    """Return the title and name of a rule that does not run."""
    title = view.titles.get(rule.name) or getattr(rule, "title", "")
    own = clipped(rule.name, width)
    return f"{clipped(title, width)} ({own})" if title else own


def headline(reason: str) -> str:
    r"""Return a reason on one line, without the lines that point at a place with a caret.

    >>> headline("an operand is missing (line 1, column 3)\n  n > \n    ^")
    'an operand is missing (line 1, column 3)'
    """
    lines = reason.split("\n")
    carets = {at for at, line in enumerate(lines) if at > 0 and line.strip() == "^"}
    pointed = carets | {at - 1 for at in carets if at > 1}
    return one_line(" ".join(line for at, line in enumerate(lines) if at not in pointed))


@lru_cache(maxsize=4)
def _short(names: tuple[str, ...]) -> dict[str, str]:
    """Return names cut at a dash behind their first characters, where that tells them apart."""
    cut = {
        name: name[:MIN_SHORT] if name[MIN_SHORT : MIN_SHORT + 1] == "-" else name for name in names
    }
    n_alike = Counter(cut.values())
    return {name: short if n_alike[short] == 1 else name for name, short in cut.items()}
