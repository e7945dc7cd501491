"""The evaluation of queries that run together: its rows say which of them they are of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import msgspec

from eddyline.query.identity import Identity
from eddyline.spark.operator import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.spark.operator import Operator
    from eddyline.spark.query import Query

PLACES = f"{PREFIX}_places"
"""The temporary column of the queries that a row belongs to, by their places."""


class Listed(msgspec.Struct, frozen=True):
    """A query in the list of those that run together."""

    text: str
    until: int | None = None
    """The last micro-batch that it has seen, of one that left while others went on."""
    written: str = ""
    """The text as it was written, with its line comments."""
    identity: Identity | None = None
    """Its identity; None in lists of versions that stored only the text."""


class Evaluation(ABC):
    """Evaluates several queries over one stream at once."""

    identity: Identity
    """Learned and durable state is of use only for queries of the same identity."""
    source: DataFrame
    """The rows of the stream, with the columns that the queries read."""
    settings: Mapping[str, str]
    """Its options, as texts."""
    words: str
    """What they have in common, in words."""
    names: Sequence[str]
    """The queries by their places in the micro-batch that was laid last."""

    @abstractmethod
    def operators(self) -> Sequence[Operator]:
        """Return the operators, with nothing learned yet; their rows have the column ``PLACES``."""

    @abstractmethod
    def projections(self, query: Query) -> tuple[str, ...]:
        """Return the output columns of a query over these rows, as SQL."""

    @abstractmethod
    def shape(self) -> DataFrame:
        """Return a DataFrame with the columns of these rows, for analysis only."""

    @abstractmethod
    def remove(self, *names: str) -> None:
        """Let queries go while the others run on."""
