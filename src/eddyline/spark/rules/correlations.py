"""Steps of correlations, behind the step of their rules.

One relation has rows of three kinds: events with their rules, matches of correlations, and alerts.
An event becomes one row as it is, and one for each correlation that a rule of it belongs to. The
correlations that refer to no other take theirs out and put alerts in; alerts become matches of
those that refer to them; and so on. In the end events and alerts are told with the same columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eddyline.errors import QueryError
from eddyline.query.correlations import (
    ALERT,
    CARRIED,
    EVENT,
    FRACTION,
    KEY,
    MASK,
    PLACE,
    TEXT,
    WHOLE,
    CorrelateStep,
)
from eddyline.query.steps import RESULT, ProjectStep
from eddyline.spark.relation import LOCAL, instant_of
from eddyline.sql.parsing import quoted
from eddyline.sql.rendering import string_literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eddyline.query.correlations import Correlation, Reference
    from eddyline.query.steps import Step
    from eddyline.rules.store import RuleStep

ALERTS = "alert"
"""The column of what is known of an alert; NULL of events."""

NUMBER = "DECIMAL(28,9)"
"""Type of the numbers that are summed up: sums of it are exact."""

_COLUMNS = (PLACE, MASK, KEY, TEXT, WHOLE, FRACTION, CARRIED, EVENT, ALERT)
_NO_TEXT = "CAST(NULL AS STRING)"
_NO_NUMBER = "CAST(NULL AS BIGINT)"
_NO_ALERT = "CAST(NULL AS STRUCT<first: BIGINT, events: BIGINT, value: DOUBLE>)"


@dataclass(frozen=True)
class Correlating:
    """Correlations that run together over the events of one input."""

    correlations: tuple[Correlation, ...]
    """None refers to one that is not among them."""
    columns: Mapping[str, str]
    """Name and Spark type of each column of the events."""
    time: str
    """Their event-time column."""
    rules: RuleStep
    """The step that finds the rules of events."""

    def steps(self) -> tuple[Step, ...]:
        """Return the steps: that of the rules, and what comes behind it.

        Raises:
            QueryError: the events have a column of the name that alerts are told in.
        """
        if ALERTS in (column.lower() for column in self.columns):
            msg = (
                f"the events have a column {ALERTS!r}, which correlations need for their alerts; "
                f"rename it: df.withColumnRenamed({ALERTS!r}, '…')"
            )
            raise QueryError(msg, column=ALERTS)
        relation = f"matches of {self.rules.input}"
        words = "events, and matches of correlations"
        spread = ProjectStep(self.rules.output, self._spread, relation, words=words)
        alike = ProjectStep(relation, self._alike, relation, words="events as one column")
        steps: list[Step] = [self.rules, spread, alike]
        for level in range(max(self._levels.values()) + 1):
            correlations = self._of_level(level)
            steps.append(CorrelateStep(relation, correlations))
            if any(correlation.name in self._referred for _, correlation in correlations):
                words = "alerts, and matches of correlations of them"
                steps.append(ProjectStep(relation, self._chained(level), relation, words=words))
        return (*steps, ProjectStep(relation, self._told, RESULT, words="events and alerts"))

    # -- what refers to what --------------------------------------------------------------------

    @cached_property
    def _places(self) -> dict[str, int]:
        return {correlation.name: place for place, correlation in enumerate(self.correlations)}

    @cached_property
    def _referred(self) -> set[str]:
        return {one.name for correlation in self.correlations for one in correlation.references}

    @cached_property
    def _levels(self) -> dict[str, int]:
        """Of each correlation, how many stand below it, one behind the other."""
        levels: dict[str, int] = {}

        def level(name: str) -> int:
            if name not in levels:
                references = self.correlations[self._places[name]].references
                inner = [one.name for one in references if one.name in self._places]
                levels[name] = max((level(below) + 1 for below in inner), default=0)
            return levels[name]

        for name in self._places:
            level(name)
        return levels

    def _of_level(self, level: int) -> tuple[tuple[int, Correlation], ...]:
        every = enumerate(self.correlations)
        return tuple(
            (place, correlation)
            for place, correlation in every
            if self._levels[correlation.name] == level
        )

    @cached_property
    def hidden(self) -> frozenset[str]:
        """The rules and correlations that are not told of by themselves."""
        silent = [correlation for correlation in self.correlations if not correlation.generate]
        return frozenset(one.name for correlation in silent for one in correlation.references)

    @cached_property
    def _carried(self) -> tuple[str, ...]:
        """SQL texts that correlations of alerts read of events."""
        of_alerts = (
            one
            for correlation in self.correlations
            for one in correlation.references
            if one.name in self._places
        )
        texts = (text for one in of_alerts for text in (*one.by, *one.value))
        return tuple(dict.fromkeys(text for text in texts if isinstance(text, str)))

    # -- events and their matches ---------------------------------------------------------------

    @property
    def _spread(self) -> tuple[str, ...]:
        """The rows that an event becomes: itself, and one for each correlation of its rules."""
        # Events are no group: they are spread by their time.
        key = f"array(CAST(xxhash64({quoted(self.time)}) AS STRING))"
        rows = [_struct(_match(-1, self._is_told, key))]
        for place, correlation in enumerate(self.correlations):
            carried = _array_text(self._carried) if self._is_carried(correlation) else _NO_TEXT
            rows += [
                _struct(_match(place, mask, key, value, carried=carried))
                for mask, key, value in self._matches(correlation)
            ]
        return ("*", _several(rows))

    @property
    def _alike(self) -> tuple[str, ...]:
        """The columns of all rows: those of events are one, NULL of matches."""
        columns = {f"c{number}": quoted(name) for number, name in enumerate(self.columns)}
        event = _struct(columns | {"matches": self._visible})
        own_columns = (f"IF({PLACE} < 0, {event}, NULL) AS {EVENT}", f"{_NO_ALERT} AS {ALERT}")
        return (quoted(self.time), *_COLUMNS[:-2], *own_columns)

    def _is_carried(self, correlation: Correlation) -> bool:
        return bool(self._carried) and correlation.name in self._referred

    @property
    def _visible(self) -> str:
        """The rules of an event that are told of."""
        column = quoted(self.rules.column)
        hidden = sorted(self.hidden - self._places.keys())
        if not hidden:
            return column
        name = "x.id" if self.rules.as_struct else "x"
        return f"filter({column}, x -> {name} NOT IN ({', '.join(map(string_literal, hidden))}))"

    @property
    def _is_told(self) -> str:
        """Not 0 if an event is given, as it has a rule that is told of."""
        return "1L" if self.rules.keep_unmatched else f"IF(size({self._visible}) > 0, 1L, 0L)"

    def _matches(self, correlation: Correlation) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return mask, group and value of an event for a correlation, for each way to group it."""
        column = quoted(self.rules.column)
        names = f"transform({column}, x -> x.id)" if self.rules.as_struct else column
        matches: list[tuple[str, str, tuple[str, ...]]] = []
        for (by, value), bits in _ways(correlation, lambda one: one.name not in self._places):
            mask = _mask(
                (bit, f"array_contains({names}, {string_literal(one.name)})") for bit, one in bits
            )
            key = _array(map(str, by))
            if not correlation.kind.startswith("temporal"):
                # An event counts once in a group, whichever of the rules it is of.
                before = [f"({other} <> 0L AND {group} <=> {key})" for other, group, _ in matches]
                mask = f"IF({' OR '.join(before)}, 0L, {mask})" if before else mask
            matches.append((mask, key, _value(correlation, [str(text) for text in value])))
        return matches

    # -- alerts ---------------------------------------------------------------------------------

    def _chained(self, level: int) -> tuple[str, ...]:
        """The rows that a row becomes: itself, and of alerts of a level also their matches."""
        places = {correlation.name: place for place, correlation in self._of_level(level)}
        hidden = ", ".join(str(place) for name, place in places.items() if name in self.hidden)
        is_alert = f"{ALERT} IS NOT NULL"
        mask = f"IF({is_alert} AND {PLACE} IN ({hidden}), 0L, {MASK})" if hidden else MASK
        rows = [_struct({column: mask if column == MASK else column for column in _COLUMNS})]
        rest = {EVENT: f"IF(FALSE, {EVENT}, NULL)", ALERT: _NO_ALERT}
        for place, correlation in enumerate(self.correlations):
            carried = CARRIED if self._is_carried(correlation) else _NO_TEXT
            for (by, value), bits in _ways(correlation, lambda one: one.name in places):
                mask = _mask(
                    (bit, f"{is_alert} AND {PLACE} = {places[one.name]}") for bit, one in bits
                )
                key, values = _array(map(self._of_alert, by)), [*map(self._of_alert, value)]
                match = _match(place, mask, key, _value(correlation, values), carried=carried)
                rows.append(_struct(match | rest))
        return (quoted(self.time), _several(rows))

    def _of_alert(self, what: str | int) -> str:
        """Return a value of an alert: of its group, or what its event carries along."""
        if isinstance(what, int):
            return f"get({KEY}, {what})"
        return f"get(from_json({CARRIED}, 'ARRAY<STRING>'), {self._carried.index(what)})"

    @property
    def _told(self) -> tuple[str, ...]:
        """The columns of results: those of events, and of alerts."""
        columns = [
            quoted(name) if name == self.time else f"{EVENT}.c{number} AS {quoted(name)}"
            for number, name in enumerate(self.columns)
        ]
        about = {
            "id": self._by_place(
                string_literal(correlation.name) for correlation in self.correlations
            ),
            "title": self._by_place(_text(correlation.title) for correlation in self.correlations),
            "level": self._by_place(_text(correlation.level) for correlation in self.correlations),
        }
        name = _struct(about) if self.rules.as_struct else about["id"]
        matches = f"IF({ALERT} IS NULL, {EVENT}.matches, array({name}))"
        groups = (
            _array(map(string_literal, correlation.groups)) for correlation in self.correlations
        )
        fields = about | {
            "type": self._by_place(
                string_literal(correlation.kind) for correlation in self.correlations
            ),
            "group": f"map_from_arrays({self._by_place(groups)}, {KEY})",
            "first": self._first,
            "last": quoted(self.time),
            "events": f"{ALERT}.events",
            "value": f"{ALERT}.value",
        }
        alert = f"IF({ALERT} IS NULL, NULL, {_struct(fields)})"
        return (*columns, f"{matches} AS {quoted(self.rules.column)}", f"{alert} AS {ALERTS}")

    @staticmethod
    def _by_place(texts: Iterable[str]) -> str:
        return f"get(array({', '.join(texts)}), {PLACE})"

    @property
    def _first(self) -> str:
        """The first instant of an alert, of the type of the event time."""
        return instant_of(f"{ALERT}.first", is_local=self.columns[self.time] == LOCAL)


def _ways(
    correlation: Correlation, is_wanted: Callable[[Reference], bool]
) -> list[tuple[tuple[tuple[str | int, ...], tuple[str | int, ...]], list[tuple[int, Reference]]]]:
    """Return references with their places, by what they are grouped by and their value."""
    ways: dict[
        tuple[tuple[str | int, ...], tuple[str | int, ...]], list[tuple[int, Reference]]
    ] = {}
    for bit, one in enumerate(correlation.references):
        if is_wanted(one):
            ways.setdefault((one.by, one.value), []).append((bit, one))
    return list(ways.items())


def _mask(bits: Iterable[tuple[int, str]]) -> str:
    """Return SQL of a number with the bits of the conditions that are true."""
    return f"({' | '.join(f'IF({condition}, {1 << bit}L, 0L)' for bit, condition in bits)})"


def _array(texts: Iterable[str]) -> str:
    return f"CAST(array({', '.join(texts)}) AS ARRAY<STRING>)"


def _array_text(texts: Sequence[str]) -> str:
    return f"to_json(array({', '.join(texts)}))"


def _text(text: str | None) -> str:
    return _NO_TEXT if text is None else string_literal(text)


def _value(correlation: Correlation, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the value of a match as text, and the parts of its number; NULL where not needed."""
    if correlation.kind == "value_count":
        if len(texts) == 1:
            return texts[0], _NO_NUMBER, _NO_NUMBER
        are_there = " AND ".join(f"{text} IS NOT NULL" for text in texts)
        return f"CASE WHEN {are_there} THEN {_array_text(texts)} END", _NO_NUMBER, _NO_NUMBER
    if not correlation.kind.startswith("value_"):
        return _NO_TEXT, _NO_NUMBER, _NO_NUMBER
    number = f"try_cast({texts[0]} AS {NUMBER})"
    whole = f"try_cast(floor({number}) AS BIGINT)"
    rest = f"CAST({number} - floor({number}) AS DECIMAL(10,9))"
    return _NO_TEXT, whole, f"CAST({rest} * 1000000000BD AS BIGINT)"


def _match(
    place: int,
    mask: str,
    key: str,
    value: Sequence[str] = (_NO_TEXT, _NO_NUMBER, _NO_NUMBER),
    *,
    carried: str = _NO_TEXT,
) -> dict[str, str]:
    """Return SQL of the columns of a match, but for event and alert."""
    return dict(zip(_COLUMNS[:-2], (str(place), mask, key, *value, carried), strict=True))


def _struct(fields: Mapping[str, str]) -> str:
    pairs = ", ".join(f"'{name}', {text}" for name, text in fields.items())
    return f"named_struct({pairs})"


def _several(rows: Sequence[str]) -> str:
    """Return SQL that makes several rows of one: those with a rule, and a group without NULL."""
    is_there = f"x.{MASK} <> 0L AND NOT exists(x.{KEY}, k -> k IS NULL)"
    return f"inline(filter(array({', '.join(rows)}), x -> {is_there}))"
