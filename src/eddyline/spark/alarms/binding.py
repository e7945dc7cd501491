"""Reads the alarms of a set over the keys and attributes of segments."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.types import LongType, StringType, StructField

from eddyline.alarms.definitions import Alarm, read_alarm
from eddyline.alarms.entities import EntityRules
from eddyline.alarms.program import AlarmProgram, program_of
from eddyline.alarms.ranges import ALARM, DEFINITION
from eddyline.errors import NotSupportedError, OptionError
from eddyline.query.rules.sources import SqlRule
from eddyline.rules.compile.program import compile_rules
from eddyline.spark.rules.binding import RuleBinder, session_settings
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from eddyline.models.steps import Shape

MADE = (StructField(ALARM, StringType()), StructField(DEFINITION, LongType()))
"""The columns that ranges of alarms have before the keys of entities."""


@dataclass(frozen=True)
class _OnKeys(SqlRule):
    """The condition on keys of an alarm."""

    noun: ClassVar[str] = "the condition on keys of alarm"


@dataclass(eq=False)
class AlarmBinder:
    """Reads alarms over segments of a kind, each text once.

    Raises:
        OptionError: a key has the name of a column of results.
    """

    keys: DataFrame
    """A DataFrame with the keys, for analysis only."""
    shape: Shape
    """Of the segments that alarms are asked of."""
    _known: dict[str, Alarm] = field(default_factory=dict)
    _binder: RuleBinder = field(default_factory=RuleBinder)

    def __post_init__(self) -> None:
        if ALARM in self.shape.keys:
            msg = f"results of alarms have a column {ALARM!r} themselves; rename the key"
            raise OptionError(msg, key=ALARM)

    def read(self, texts: Mapping[str, str]) -> AlarmProgram:
        """Return alarms, given by name, as they are solved together.

        Raises:
            QueryError: one does not fit; the message names it.
            NotSupportedError: no comparison of polynomials says the same, or a condition on keys
                computes something of them.
        """
        self._known = {name: self._alarm(name, text) for name, text in texts.items()}
        return program_of(list(self._known.values()), self._compiled)

    def check(self, texts: Mapping[str, str]) -> None:
        """Check that alarms fit; errors as above."""
        program_of([self._alarm(name, text) for name, text in texts.items()], self._compiled)

    def _alarm(self, name: str, text: str) -> Alarm:
        known = self._known.get(name)
        if known is not None and known.text == text:
            return known
        return read_alarm(name, text, self.shape.attributes, self.shape.keys)

    def _compiled(self, texts: Mapping[str, str]) -> EntityRules:
        sources = [_OnKeys(name, text) for text, name in texts.items()]
        bound = self._binder.bind(self.keys, sources, skips=False)
        program = compile_rules(bound.rules)
        plain = {quoted(each): each for each in self.shape.keys}
        plain |= {each: each for each in self.shape.keys}
        for each in program.columns:
            if each not in plain:
                msg = (
                    f"conditions on keys of alarms compare the keys {', '.join(self.shape.keys)} "
                    f"with constants, and one computes {each}; compute it before the models, as a "
                    f"key of its own"
                )
                raise NotSupportedError(msg, computed=each)
        said = repr(([*texts], self.keys.dtypes, session_settings(self.keys.sparkSession)))
        digest = hashlib.blake2b(said.encode(), digest_size=16).hexdigest()
        return EntityRules(program, tuple(plain[each] for each in program.columns), digest)
