"""Any data source that Spark can write to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from eddyline.errors import OptionError
from eddyline.registry import checked_text
from eddyline.spark.analysis import reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame

TAKE_ALL = frozenset(
    {"avro", "csv", "delta", "jdbc", "json", "kafka", "noop", "orc", "parquet", "text"}
)
"""Data sources that write every row; of others it is not known."""

_QUERY_ID = "sql.streaming.queryId"
"""Spark's local property of the id of a streaming query, which its checkpoint keeps."""


class FormatSink:
    """Appends each micro-batch to a data source of Spark's, such as ``delta`` or ``kafka``.

    Delta tables are told the ids of the query and of the batch (``txnAppId``, ``txnVersion``), so
    that a batch that runs again after a failure is there once. Other data sources get such a batch
    twice. Rows without a column ``value`` go to Kafka as JSON texts of all their columns.

    Args:
        kind: name of the data source.
        path: where it writes, if that is a path.
        options: of its writer.

    Raises:
        OptionError: the session knows no such data source.
    """

    notes: tuple[str, ...] = ()

    def __init__(
        self, kind: str, path: str | Path | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        self.kind = checked_text("format of the sink", kind)
        self.path = None if path is None else str(path)
        self.options = dict(options or {})
        self.takes_all = kind.lower() in TAKE_ALL
        if kind != "delta":
            self.notes = (f"{kind}: a batch that runs again after a failure is appended once more",)
        _check_known(kind)

    def begin(self, *, continues: bool) -> None:
        """Do nothing: what is there already belongs to the data source."""

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Append the batch."""
        options = self.options
        if self.kind == "delta":
            # The number of a batch means something within one checkpoint alone.
            query = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
            options = {"txnAppId": f"eddyline {query}", "txnVersion": batch_id} | options
        if self.kind == "kafka" and "value" not in df.columns:
            df = df.select(F.to_json(F.struct("*")).alias("value"))
        df.write.format(self.kind).options(**options).mode("append").save(self.path)


def _check_known(kind: str) -> None:
    """Raise OptionError if Spark knows no data source of that name.

    Spark itself looks for one when the first batch is written.
    """
    spark: Any = SparkSession.getActiveSession()
    if spark is None or not hasattr(spark, "_jvm"):
        return
    sources = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        sources.lookupDataSource(kind, spark._jsparkSession.sessionState().conf())
    except (PySparkException, Py4JJavaError) as error:
        msg = (
            f"Spark has no data source {kind!r}: {reason_of(error)} A package is given to the "
            f"session when it starts: el.session(**{{'spark.jars.packages': '…'}})"
        )
        raise OptionError(msg, format=kind) from error
