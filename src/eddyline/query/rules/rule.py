"""``el.Rule``: a condition with level, tags and title.

These never change an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, TypeVar

from eddyline.errors import OptionError, QueryError
from eddyline.options import check_names
from eddyline.registry import checked_text, unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eddyline.query.predicates import Predicate

T = TypeVar("T", bound="Described")

LEVELS = ("informational", "low", "medium", "high", "critical")
"""Levels as Sigma has them, the least first."""


class Described(Protocol):
    """What a rule, or a correlation, says of itself."""

    @property
    def name(self) -> str:
        """The name, unique in its set."""

    @property
    def text(self) -> str:
        """What its author wrote."""

    @property
    def info(self) -> Mapping[str, Any]:
        """Further facts about it: title, level, tags, and the type of a correlation."""


class Facts(TypedDict, total=False):
    """What chosen rules have; all that is given has to hold."""

    level: str | Collection[str] | None
    """Their level: exactly this one, or one of these."""
    min_level: str | None
    """Their least level."""
    tag: str | Collection[str] | None
    """A tag that they have, or of which they have one."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition with its level, tags and title.

    These choose rules and tell people about them. They are no part of what a rule means: one whose
    title changes keeps its counts, and the set its plan.

    Args:
        condition: as in ``el.RuleSet``: SQL text, or a predicate. It describes the rows to find.
        level: ``informational``, ``low``, ``medium``, ``high`` or ``critical``.
        tags: words to choose rules by.
        title: what people call it.

    Raises:
        OptionError: an unknown level, tags that are no list of texts, or a title that is no text.

    Example:
        >>> rule = Rule("n < 0", level="high", tags=["pii"])
        >>> rule.level, rule.tags
        ('high', ('pii',))
    """

    condition: str | Predicate
    _: KW_ONLY
    level: str | None = None
    tags: Collection[str] = ()
    title: str | None = None

    def __post_init__(self) -> None:
        if self.level is not None:
            check_level(self.level)
        if self.title is not None:
            checked_text("title of a rule", self.title)
        if isinstance(self.tags, str) or not isinstance(self.tags, list | tuple | set | frozenset):
            msg = f"tags of a rule are a list of texts, such as ['pii'], got {self.tags!r:.60}"
            raise OptionError(msg, tags=self.tags)
        for tag in self.tags:
            checked_text("tag of a rule", tag)
        ordered = sorted(self.tags) if isinstance(self.tags, set | frozenset) else self.tags
        object.__setattr__(self, "tags", tuple(ordered))

    @classmethod
    def of(cls, source: Described) -> Self:
        """Return a rule of a set, its text as the condition; a level that is none of ours is None.

        Sigma rules may have such a level, and run.
        """
        level, title = source.info.get("level"), source.info.get("title")
        tags = tuple(source.info.get("tags") or ())
        return cls(
            source.text, level=level if level in LEVELS else None, tags=tags, title=title or None
        )

    @property
    def info(self) -> dict[str, Any]:
        """What is known of it beside the condition."""
        return {"title": self.title, "level": self.level, "tags": self.tags}

    @property
    def rank(self) -> int:
        """The place of its level in ``LEVELS``, -1 without one."""
        return -1 if self.level is None else LEVELS.index(self.level)


def check_level(level: Any) -> None:
    """Raise OptionError if a level is none of ``LEVELS``."""
    if level not in LEVELS:
        raise OptionError(unknown("level", level, LEVELS), level=level)


def chosen(sources: Mapping[str, T], facts: Facts) -> dict[str, T]:
    """Return the rules that have all that is asked for.

    Raises:
        OptionError: a fact that rules are not chosen by (a misspelt one would choose them all), an
            unknown level, or a tag that is no text.
        QueryError: a tag that none of the rules has.
    """
    check_names("way to choose rules", facts, list(Facts.__annotations__))
    levels, tags = _several(facts.get("level")), _several(facts.get("tag"))
    least = facts.get("min_level")
    for level in (*(levels or ()), *([] if least is None else [least])):
        check_level(level)
    rules = {name: Rule.of(source) for name, source in sources.items()}
    known_tags = dict.fromkeys(tag for rule in rules.values() for tag in rule.tags)
    for tag in tags or ():
        if checked_text("tag", tag) not in known_tags:
            raise QueryError(unknown("tag", tag, known_tags), tag=tag)
    min_rank = -1 if least is None else LEVELS.index(least)
    return {
        name: sources[name]
        for name, rule in rules.items()
        if rule.rank >= min_rank
        and (levels is None or rule.level in levels)
        and (tags is None or not set(tags).isdisjoint(rule.tags))
    }


def _several(values: str | Collection[str] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Iterable):
        return (values,)
    return tuple(values)
