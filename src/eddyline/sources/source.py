"""Protocol of sources: offsets and splits.

An offset says how far a stream is; a task reads a split. Spark asks a source in its driver for
offsets and splits, and in its workers for the rows of a split. Offsets are JSON. Spark keeps them
in its checkpoint, so a batch that runs again has the same two offsets. Invariant: two offsets
always give the same rows, or an error.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from eddyline.errors import NotSupportedError, OptionError
from eddyline.registry import unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    Offset = dict[str, Any]
    """How far a stream is; JSON."""
    Split = Any
    """What one task reads; it can be pickled."""

SECRET = ("password", "secret", "token", "key")
"""Parts of names of options whose values are not shown."""


LIMIT = "max_per_batch"
"""The option with the most rows of a batch, of sources that take it."""


class Source(ABC):
    """Rows of one place outside, as a stream or as a table.

    A source is made of texts, because Spark's options are texts. It opens connections when it needs
    them and none of them is pickled.

    Args:
        options: its options by name, in small letters.

    Raises:
        OptionError: an option is unknown, missing or out of range.
    """

    kind: ClassVar[str]
    """Its name, such as ``kafka``."""
    names: ClassVar[frozenset[str]]
    """Options that it takes."""
    prefixes: ClassVar[tuple[str, ...]] = ()
    """Starts of options that it hands on to its package, such as ``kafka.``."""
    rejects: ClassVar[bool] = False
    """Whether it can reject values; see ``rejected``."""
    rejected_to: str | None = None
    """The folder of values that a task rejects; None: there is none."""
    newest_offset: Offset | None = None
    """The newest offset that ``latest`` has seen, without its limits; None: not asked yet."""
    function: Any = None
    """A function of the user's that reads values; None: the options say how."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        for name in self.options:
            if name not in self.names and not self.is_handed_on(name):
                msg = unknown(f"option of {self.kind}", name, sorted(self.names))
                raise OptionError(msg, option=name)
        most = self.options.get(LIMIT)
        is_number = most is not None and re.fullmatch(r"0*[1-9][0-9]{0,17}", most)
        if most is not None and not is_number:
            msg = f"option {LIMIT!r} is a number of rows from 1 on, got {most!r}"
            raise OptionError(msg, max_per_batch=most)

    def __repr__(self) -> str:
        """Show the options, but no secret."""
        shown = {
            name: "…" if self.is_handed_on(name) or any(part in name for part in SECRET) else value
            for name, value in self.options.items()
        }
        return f"<{self.kind}: {', '.join(f'{name}={value}' for name, value in shown.items())}>"

    def is_handed_on(self, name: str) -> bool:
        """Whether an option goes to the package of the source; it may be a secret."""
        return name.startswith(self.prefixes)

    @abstractmethod
    def ddl(self, version: Offset | None = None) -> str:
        """Return the columns as Spark's DDL.

        Args:
            version: of a table; the newest if None.

        Raises:
            SourceError: the source has to be asked and does not answer.
        """

    def check(self, schema: pa.Schema) -> None:  # noqa: B027 - most sources take all types
        """Raise OptionError if the source cannot have columns of such types."""

    # -- as a stream ------------------------------------------------------------------------------

    @abstractmethod
    def initial(self) -> Offset:
        """Return where a new query starts.

        Raises:
            SourceError: the source does not answer, or has no such place.
        """

    @abstractmethod
    def latest(self, start: Offset | None, most_rows: int | None, until: Offset | None) -> Offset:
        """Return how far a batch may read.

        Args:
            start: where it starts; None: not known.
            most_rows: most rows of the batch, as far as the source can keep it; None: all.
            until: where the query ends; None: it goes on.

        Raises:
            SourceError: the source does not answer, or rows after ``start`` are gone.
        """

    @abstractmethod
    def splits(self, start: Offset, end: Offset) -> Sequence[Split]:
        """Return what the tasks of a batch read, in no order.

        Raises:
            SourceError: rows between the offsets are gone.
        """

    @abstractmethod
    def read(self, split: Split, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split, in a worker.

        Args:
            split: one of ``splits`` or ``table_splits``.
            schema: the columns, in the order of ``ddl``, as Spark's Arrow types.

        Raises:
            SourceError: they cannot be read.
        """

    def plain_files(self, start: Offset, end: Offset) -> Sequence[str] | None:  # noqa: ARG002
        """Return the Parquet files of this machine whose rows are those between two offsets.

        None: there are other rows, or columns are not those of the files.
        """
        return None

    def are_few(self, start: Offset, end: Offset) -> bool:  # noqa: ARG002
        """Whether the driver itself may read the rows between two offsets, because they are few."""
        return False

    @property
    def most_rows(self) -> int | None:
        """Most rows of a batch, by its options, as far as the source can keep it; None: all."""
        most = self.options.get(LIMIT)
        return None if most is None else int(most)

    def stop(self) -> None:  # noqa: B027 - sources without connections have nothing to close
        """Close connections."""

    # -- as a table -------------------------------------------------------------------------------

    def version(self) -> Offset:
        """Return the newest version of a table.

        Raises:
            NotSupportedError: the source is no table.
            SourceError: it does not answer.
        """
        msg = f"{self.kind} is read as a stream, not as a table: engine.stream(…, {self!r})"
        raise NotSupportedError(msg, source=self.kind)

    def table_splits(self, version: Offset) -> Sequence[Split]:
        """Return what the tasks of a job read of one version of a table.

        Raises:
            NotSupportedError: the source is no table.
            SourceError: the version is gone.
        """
        raise NotImplementedError
