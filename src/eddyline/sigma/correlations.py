"""Sigma correlations, read once: they bind to every input that they meet."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - the cache decodes by these types
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eddyline.errors import QueryError
from eddyline.query.correlations import Correlation, Reference
from eddyline.sigma.fields import Columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.query.correlations import CorrelationSource


@dataclass(frozen=True, slots=True)
class SigmaCorrelation:
    """A Sigma correlation (a ``CorrelationSource``), small and without pySigma's objects."""

    name: str
    """Its id; if it has none, its title or file name as a word."""
    text: str
    """The YAML document."""
    info: Mapping[str, str | tuple[str, ...] | None]
    """``title level status tags author description falsepositives references date type rules
    group_by timespan condition path``; None or empty where it does not say."""
    kind: str
    """One of ``query.correlations.KINDS``."""
    refers_to: tuple[str, ...]
    """The names of rules and correlations, in the order in which it lists them."""
    length: int
    """The timespan (µs)."""
    tests: tuple[tuple[str, int], ...]
    program: tuple[int, ...]
    """See ``query.correlations.Correlation``."""
    percentile: int
    group_by: tuple[str, ...]
    """Fields or aliases."""
    fields: tuple[str, ...]
    """Fields that are counted or summed up."""
    aliases: Mapping[str, Mapping[str, str]]
    """Of each alias, the field by the name of the rule."""
    generate: bool

    def named(self, name: str) -> SigmaCorrelation:
        """Return the correlation under another name."""
        return replace(self, name=name)

    def bind(
        self, columns: Mapping[str, str], others: Mapping[str, CorrelationSource]
    ) -> Correlation:
        """Return the correlation over an input.

        Raises:
            QueryError: events lack a field, or it is of a type that has no texts.
        """
        known = Columns(columns)
        references = tuple(
            Reference(
                name,
                self._values(self.group_by, "group-by", name, known, others),
                self._values(self.fields, "condition", name, known, others),
            )
            for name in self.refers_to
        )
        title, level = self.info.get("title"), self.info.get("level")
        return Correlation(
            name=self.name,
            kind=self.kind,
            references=references,
            length=self.length,
            tests=self.tests,
            program=self.program,
            percentile=self.percentile,
            groups=self.group_by,
            fields=self.fields,
            title=str(title) if title else None,
            level=str(level) if level else None,
            generate=self.generate,
        )

    def _values(
        self,
        names: Sequence[str],
        what: str,
        rule: str,
        columns: Columns,
        others: Mapping[str, CorrelationSource],
    ) -> tuple[str | int, ...]:
        """Return where the values of names are, in the matches of a rule."""
        return tuple(self._value(each, what, rule, columns, others) for each in names)

    def _value(
        self,
        name: str,
        what: str,
        rule: str,
        columns: Columns,
        others: Mapping[str, CorrelationSource],
    ) -> str | int:
        field = self.aliases.get(name, {}).get(rule, name)
        inner = others.get(rule)
        if isinstance(inner, SigmaCorrelation) and field in inner.group_by:
            return inner.group_by.index(field)
        found = columns.find(field)
        said = repr(field) if field == name else f"{field!r} (alias {name!r})"
        path = self.info["path"] or "text"
        where = f"Sigma correlation {self.name} ({path}): {what} field {said}"
        if found is None:
            msg = f"{where}, of events of rule {rule}, is none of the events' columns"
            raise QueryError(msg, correlation=self.name, field=field)
        if found.is_nested:
            msg = f"{where} is of type {found.type_text}; texts, numbers and times can be compared"
            raise QueryError(msg, correlation=self.name, field=field)
        return found.as_text.sql
