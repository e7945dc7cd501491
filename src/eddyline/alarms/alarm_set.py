"""``el.AlarmSet``: named alarms that may change while they run.

The step of a query that evaluates them is here, too. An alarm is a name and a condition over
modelled attributes and keys, given as text or as ``el.Rule`` (``AlarmSource``). A query reads its
text over the keys and attributes of its segments (``Alarm``), checks each later change of the set,
and takes the alarms of the moment a micro-batch starts.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from eddyline.errors import QueryError
from eddyline.models.solving.text import split_condition
from eddyline.models.streams.plan import ModelStep
from eddyline.query.rules.rule import Rule, chosen
from eddyline.registry import checked_text, unknown
from eddyline.runtime.journal import Journal
from eddyline.sql.parsing import parse_condition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from eddyline.models.solving.expressions import Condition
    from eddyline.query.rules.rule import Facts
    from eddyline.runtime.journal import JournalEntry


class Asking(Protocol):
    """A query of a stream that asks the alarms of a set; the set keeps a weak reference."""

    def check(self, alarms: Mapping[str, str]) -> None:
        """Check that alarms, texts by their names, fit.

        Raises:
            QueryError: one does not.
        """

    def explain(self, entries: Iterable[JournalEntry], width: int) -> str:
        """Return in words how alarms are solved."""

    def report(self, entries: Iterable[JournalEntry], path: str | Path) -> Path:
        """Write a page of it."""


class AlarmSet:
    """Named alarms: conditions over modelled attributes and keys, solved together.

    ``Segments.alarms`` asks them. Alarms may be added, removed and replaced at any time, also while
    a query asks them: from the next micro-batch on they are as they are then.

    Args:
        alarms: conditions as of ``Segments.where``, by their names; or ``el.Rule``, which has one
            with its level, tags and title; or another set.
        name: what the set is called in plans and journals.

    Raises:
        QueryError: an alarm is no condition; the message names it.

    Example:
        >>> alarms = AlarmSet({"fast": "d(x) > 3 AND ship <> 7"})
        >>> alarms.add("far", "x > 1000")
        >>> alarms.names
        ('fast', 'far')
    """

    def __init__(
        self, alarms: Mapping[str, Given] | AlarmSet | None = None, *, name: str = "alarms"
    ) -> None:
        self.name = checked_text("name of a set", name)
        self._sources: dict[str, AlarmSource] = {}
        self._journal = Journal()
        self._asking: list[weakref.ReferenceType[Asking]] = []
        """The queries of streams that ask the alarms, the last one behind the others."""
        self._version = 0
        self._lock = threading.RLock()
        self.add({} if alarms is None else alarms)

    @property
    def names(self) -> tuple[str, ...]:
        """The alarms in their order."""
        return tuple(self.now()[1])

    @property
    def info(self) -> dict[str, Mapping[str, Any]]:
        """Facts about each alarm, by its name: its text, title, level and tags."""
        return {name: {"text": source.text, **source.info} for name, source in self._all().items()}

    @property
    def text(self) -> str:
        """The alarms as they were written, each on a line."""
        return "\n".join(f"{name}: {text}" for name, text in self.now()[1].items())

    def now(self) -> tuple[int, dict[str, str]]:
        """Return a number that is another one after each change, and the texts by name."""
        with self._lock:
            return self._version, {name: source.text for name, source in self._sources.items()}

    def add(self, alarms: str | Mapping[str, Given] | AlarmSet, alarm: Given | None = None) -> None:
        """Add alarms: ``add("far", "x > 1000")``, several by their names, or those of another set.

        All are added, or none. Instead of a condition, ``el.Rule`` gives one with its level, tags
        and title.

        Raises:
            QueryError: a name is taken, a text is no condition, or does not fit the segments of a
                query that asks the set.
        """
        sources = _by_name(alarms, alarm)
        with self._lock:
            taken = [name for name in sources if name in self._sources]
            if taken:
                msg = f"alarm {taken[0]!r} exists already; use replace({taken[0]!r}, …)"
                raise QueryError(msg, alarm=taken[0])
            self._put(sources)

    def replace(
        self, name: str | Mapping[str, Given] | AlarmSet, alarm: Given | None = None
    ) -> None:
        """Replace an alarm at its place, or several; what held until then is told as over.

        All are replaced, or none: ``replace("far", "x > 2000")``, several by their names, or by
        those of another set. Level, tags and title are those of the new alarm; if only these
        change, what holds goes on.

        Raises:
            QueryError: there is no such alarm, or as for ``add``.
        """
        sources = _by_name(name, alarm)
        with self._lock:
            self._check_known(sources)
            self._put(sources)

    def select(self, *names: str, name: str | None = None, **facts: Unpack[Facts]) -> AlarmSet:
        """Return a set of some of the alarms, which from then on is a set of its own.

        Of what is said all has to hold: ``select(min_level="high", tag="port")`` are the alarms
        with that tag from that level on.

        Args:
            *names: of alarms; without any, those of all names.
            name: what the new set is called; None: as this one.
            **facts: ``level``, ``min_level`` and ``tag``, as for ``RuleSet.select``.

        Raises:
            QueryError: nothing is said, there is no such alarm, or none has the tag.
            OptionError: an unknown level.
        """
        if not names and all(fact is None for fact in facts.values()):
            msg = "select takes names of alarms, level=…, min_level=… or tag=…; got none of them"
            raise QueryError(msg, alarms=self.name)
        subset = AlarmSet(name=self.name if name is None else name)
        with self._lock:
            subset._put(self._chosen(names, facts))
        return subset

    def remove(self, *names: str, **facts: Unpack[Facts]) -> None:
        """Remove alarms by their names, or by level or tag as ``select`` chooses them.

        All are removed, or none; what held until then is told as over.

        Raises:
            QueryError: there is no such alarm, or none has the tag.
            OptionError: an unknown level.
        """
        if not names and all(fact is None for fact in facts.values()):
            return
        with self._lock:
            gone = self._chosen(names, facts)
            self._sources = {
                name: self._sources[name] for name in self._sources if name not in gone
            }
            self._version += bool(gone)

    # -- what was learned -----------------------------------------------------------------------

    @property
    def journal(self) -> list[dict[str, Any]]:
        """What was decided about these alarms so far, as rows, by all queries that ask them.

        Plans that are pinned, or recalled by the log of plans, are in the journal of the run.
        """
        with self._lock:
            return self._journal.rows()

    def explain(self, *, width: int = 100) -> str:
        """Return in words how the alarms are solved, by the query of a stream that asked them last.

        Args:
            width: columns of the text.

        Raises:
            QueryError: no query of a stream asks them.
        """
        with self._lock:
            last, entries = self._asked_last(), [*self._journal]
        return last.explain(entries, width)

    def report(self, path: str | Path) -> Path:
        """Write what is known of the alarms as one self-contained HTML page.

        Raises:
            QueryError: as for ``explain``.
            EddylineError: the extra ``report`` is not installed.
        """
        with self._lock:
            last, entries = self._asked_last(), [*self._journal]
        return last.report(entries, path)

    def note(self, entries: Iterable[JournalEntry]) -> None:
        """Take in decisions of a query that asks the alarms."""
        with self._lock:
            self._journal.extend(entries)

    def asked_by(self, query: Asking) -> None:
        """Take note of a query that asks the alarms: later ones have to fit it, too."""
        with self._lock:
            others = [reference for reference in self._asking if reference() not in (None, query)]
            self._asking = [*others, weakref.ref(query)]

    def _queries(self) -> list[Asking]:
        """Return the queries that still are, the one that asked last at the end."""
        return [query for reference in self._asking if (query := reference()) is not None]

    def _asked_last(self) -> Asking:
        if queries := self._queries():
            return queries[-1]
        msg = (
            f"{self.name}: no query of a stream asks these alarms; make one by "
            "segments.alarms(…), and keep it"
        )
        raise QueryError(msg, alarms=self.name)

    def _all(self) -> dict[str, AlarmSource]:
        with self._lock:
            return dict(self._sources)

    def _chosen(self, names: tuple[str, ...], facts: Facts) -> dict[str, AlarmSource]:
        self._check_known(names)
        some = {
            name: source for name, source in self._sources.items() if not names or name in names
        }
        return chosen(some, facts)

    def _put(self, sources: Mapping[str, AlarmSource]) -> None:
        texts = {name: source.text for name, source in sources.items()}
        for name, text in texts.items():
            check_alarm(name, text)
        for query in self._queries():
            query.check(texts)
        self._sources |= sources
        self._version += bool(sources)

    def _check_known(self, names: Iterable[str]) -> None:
        for name in names:
            if checked_text("name of an alarm", name) not in self._sources:
                raise QueryError(unknown("alarm", name, list(self._sources)), alarm=name)

    def __len__(self) -> int:
        return len(self._sources)

    def __repr__(self) -> str:
        return f"AlarmSet({len(self)} alarms)"


def _by_name(alarms: Any, alarm: Given | None) -> dict[str, AlarmSource]:
    if not isinstance(alarms, str) and alarm is not None:
        msg = "a text goes with one name; several alarms have theirs by their names"
        raise QueryError(msg, got=type(alarms).__name__)
    if isinstance(alarms, AlarmSet):
        return alarms._all()
    by_name = {alarms: alarm} if isinstance(alarms, str) else alarms
    if not isinstance(by_name, Mapping):
        msg = "alarms are texts by their names: add('far', 'x > 1000') or add({'far': 'x > 1000'})"
        raise QueryError(msg, got=type(alarms).__name__)
    for name in by_name:
        if not isinstance(name, str) or not name:
            msg = f"an alarm is named by a text that is not empty, got {name!r}"
            raise QueryError(msg, alarm=name)
    return {name: source_of(name, source) for name, source in by_name.items()}


@dataclass(frozen=True, slots=True)
class AlarmStep(ModelStep):
    """Rows of a relation as segments, and when alarms of a set hold, as these are by then.

    The plan has the alarms of the moment when it was made; what identifies the query has not.
    """

    alarms: AlarmSet = field(kw_only=True, repr=False)

    def __str__(self) -> str:
        return f"{super(AlarmStep, self).__str__()}; alarms {self.alarms.name}"


Given = str | Rule
"""A condition as text, or one with its level, tags and title."""


@dataclass(frozen=True, slots=True)
class AlarmSource:
    """An alarm as it was given, with what people need to know of it."""

    name: str
    text: str
    info: Mapping[str, Any]


def source_of(name: str, condition: Any) -> AlarmSource:
    """Return an alarm of its text, or of a rule.

    Raises:
        QueryError: it is neither, or a rule whose condition is no text.
    """
    rule = condition if isinstance(condition, Rule) else Rule(condition)
    if not isinstance(rule.condition, str):
        msg = (
            f"alarm {name!r} is a text such as 'x > 1000', or an el.Rule of one: add('far', "
            f"'x > 1000') or add({{'far': 'x > 1000'}}); got {type(rule.condition).__name__}"
        )
        raise QueryError(msg, alarm=name)
    return AlarmSource(name, rule.condition, rule.info)


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm over segments whose keys and attributes are known."""

    name: str
    text: str
    keys: str | None
    """What it asks of keys, as SQL; None if nothing."""
    condition: Condition | None
    """What it asks of models; None if nothing: it holds wherever there is one."""

    @property
    def definition(self) -> int:
        """A number that tells it from other alarms and from other texts of its name (64 bits)."""
        content = f"{len(self.name)} {self.name}{self.text}".encode()
        digest = hashlib.blake2b(content, digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)


def check_alarm(name: str, text: str) -> None:
    """Check that a text is a condition; names in it are looked up when it meets segments.

    Raises:
        QueryError: it is none.
    """
    try:
        parse_condition(text, "the condition")
    except QueryError as error:
        raise _named(error, name) from error


def read_alarm(name: str, text: str, attributes: Collection[str], keys: Collection[str]) -> Alarm:
    """Return an alarm over segments.

    Args:
        name: of the alarm.
        text: as for ``Segments.where``.
        attributes: the modelled attributes.
        keys: the columns that say the entity.

    Raises:
        QueryError: it cannot be read, or names what there is not.
        NotSupportedError: no comparison of polynomials says the same.
    """
    try:
        native, condition = split_condition(text, attributes, keys)
    except QueryError as error:
        raise _named(error, name) from error
    on_keys = " AND ".join(f"({conjunct})" for conjunct in native) if native else None
    return Alarm(name, text, on_keys, condition)


def _named(error: QueryError, name: str) -> QueryError:
    return type(error)(f"alarm {name!r}: {error.message}", **{**error.facts, "alarm": name})
