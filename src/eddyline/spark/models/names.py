"""Names that a caller gives to attributes and sides, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.errors import OptionError
from eddyline.models import steps
from eddyline.registry import checked_text

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_attribute(name: str, keys: Sequence[str]) -> None:
    """Check the name of an attribute.

    Raises:
        OptionError: it is that of a key, or of a column that results have.
    """
    taken = [*keys, steps.TIME, steps.SINCE, steps.UNTIL]
    if name in taken:
        msg = f"an attribute is called {name!r}, which results have beside it; give it another name"
        raise OptionError(msg, name=name)


def read_pair(names: Sequence[str]) -> tuple[str, str]:
    """Return the names of two sides.

    Raises:
        OptionError: they are not two words that differ.
    """
    if isinstance(names, str) or len(names) != 2 or names[0] == names[1]:
        msg = f"names are two that differ, such as ('left', 'right'), got {names!r:.60}"
        raise OptionError(msg, names=names)
    for each in names:
        if not checked_text("name of a side", each).isidentifier():
            msg = f"the name of a side is a word, such as 'left', got {each!r}"
            raise OptionError(msg, names=names)
    return names[0], names[1]


def said(types: Sequence[tuple[str, str]]) -> str:
    """Return columns and their types in words."""
    return ", ".join(f"{name} {kind}" for name, kind in types)
