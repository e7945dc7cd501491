"""``el.AlarmSet``: named alarms that may change while they run."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from eddyline.alarms.definitions import check_alarm
from eddyline.errors import QueryError
from eddyline.registry import checked_text, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable


class Reader(Protocol):
    """A query that asks the alarms of a set, of segments with some keys and attributes."""

    def check(self, alarms: Mapping[str, str]) -> None:
        """Check that alarms fit.

        Raises:
            QueryError: one does not.
        """


class AlarmSet:
    """Named alarms: conditions over modelled attributes and keys, solved together.

    ``Segments.alarms`` asks them. Alarms may be added, removed and replaced at any time, also while
    a query asks them: from the next micro-batch on they are as they are then.

    Args:
        alarms: conditions as of ``Segments.where``, by their names.
        name: what the set is called in plans and journals.

    Raises:
        QueryError: an alarm is no condition; the message names it.

    Example:
        >>> alarms = AlarmSet({"fast": "d(x) > 3 AND ship <> 7"})
        >>> alarms.add("far", "x > 1000")
        >>> alarms.names
        ('fast', 'far')
    """

    def __init__(self, alarms: Mapping[str, str] | None = None, *, name: str = "alarms") -> None:
        self.name = checked_text("name of a set", name)
        self._texts: dict[str, str] = {}
        self._version = 0
        self._lock = threading.RLock()
        self._readers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.add({} if alarms is None else alarms)

    @property
    def names(self) -> tuple[str, ...]:
        """The alarms in their order."""
        return tuple(self.now()[1])

    @property
    def info(self) -> dict[str, Mapping[str, Any]]:
        """Facts about each alarm, by its name: its text."""
        return {name: {"text": text} for name, text in self.now()[1].items()}

    @property
    def text(self) -> str:
        """The alarms as they were written, each on a line."""
        return "\n".join(f"{name}: {text}" for name, text in self.now()[1].items())

    def now(self) -> tuple[int, dict[str, str]]:
        """Return a number that is another one after each change, and the texts by name."""
        with self._lock:
            return self._version, dict(self._texts)

    def add(self, alarms: str | Mapping[str, str] | AlarmSet, text: str | None = None) -> None:
        """Add alarms: ``add("far", "x > 1000")``, several by their names, or those of another set.

        All are added, or none.

        Raises:
            QueryError: a name is taken, a text is no condition, or does not fit the segments of a
                query that asks the set.
        """
        given = _by_name(alarms, text)
        with self._lock:
            taken = [each for each in given if each in self._texts]
            if taken:
                msg = f"alarm {taken[0]!r} exists already; use replace({taken[0]!r}, …)"
                raise QueryError(msg, alarm=taken[0])
            self._put(given)

    def replace(self, name: str | Mapping[str, str] | AlarmSet, text: str | None = None) -> None:
        """Replace an alarm at its place, or several; what held until then is told as over.

        All are replaced, or none: ``replace("far", "x > 2000")``, several by their names, or by
        those of another set.

        Raises:
            QueryError: there is no such alarm, or as for ``add``.
        """
        given = _by_name(name, text)
        with self._lock:
            self._check_known(given)
            self._put(given)

    def select(self, *names: str, name: str | None = None) -> AlarmSet:
        """Return a set of some of the alarms, which from then on is a set of its own.

        Args:
            *names: of alarms.
            name: what the new set is called; None: as this one.

        Raises:
            QueryError: no name is given, or there is no such alarm.
        """
        if not names:
            msg = "select takes names of alarms, such as select('far'); got none"
            raise QueryError(msg, alarms=self.name)
        with self._lock:
            self._check_known(names)
            chosen = {each: self._texts[each] for each in self._texts if each in names}
        return AlarmSet(chosen, name=self.name if name is None else name)

    def remove(self, *names: str) -> None:
        """Remove alarms, all or none; what held until then is told as over.

        Raises:
            QueryError: there is no such alarm.
        """
        with self._lock:
            self._check_known(names)
            for each in names:
                self._texts.pop(each, None)
            self._version += bool(names)

    def asked_by(self, reader: Reader) -> None:
        """Take note of a query that asks the alarms: later ones have to fit it, too."""
        self._readers.add(reader)

    def _put(self, given: Mapping[str, str]) -> None:
        for name, text in given.items():
            check_alarm(name, text)
        for reader in list(self._readers):
            reader.check(given)
        self._texts |= given
        self._version += bool(given)

    def _check_known(self, names: Iterable[str]) -> None:
        for name in names:
            if checked_text("name of an alarm", name) not in self._texts:
                raise QueryError(unknown("alarm", name, list(self._texts)), alarm=name)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return f"AlarmSet({len(self)} alarms)"


def _by_name(alarms: Any, text: str | None) -> dict[str, str]:
    if isinstance(alarms, AlarmSet):
        alarms = alarms.now()[1]
    if not isinstance(alarms, str) and text is not None:
        msg = "a text goes with one name; several alarms have theirs by their names"
        raise QueryError(msg, got=type(alarms).__name__)
    given = {alarms: text} if isinstance(alarms, str) else alarms
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for each in given.values()):
        msg = "alarms are texts by their names: add('far', 'x > 1000') or add({'far': 'x > 1000'})"
        raise QueryError(msg, got=type(alarms).__name__)
    for name in given:
        if not isinstance(name, str) or not name:
            msg = f"an alarm is named by a text that is not empty, got {name!r}"
            raise QueryError(msg, alarm=name)
    return dict(given)
