"""The call of segments that asks the alarms of a set."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from eddyline.alarms.alarm_set import AlarmSet, AlarmStep
from eddyline.alarms.ranges import DEFINITION, AlarmRanges
from eddyline.errors import QueryError
from eddyline.models.steps import Changes
from eddyline.options import AlarmOptions
from eddyline.spark.alarms.operator import MADE, AlarmBinder
from eddyline.spark.models.graphs import precise
from eddyline.spark.models.laying import laid
from eddyline.spark.models.queries import query_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddyline.spark.models.graphs import Graph
    from eddyline.spark.query import Query


class WithAlarms:
    """Segments that alarms are asked of."""

    _graph: Graph

    def alarms(self, alarms: AlarmSet, **options: Any) -> DataFrame | Query:
        """Return when the alarms of a set hold: a row for each range of time, as of ``changes``.

        All are solved together, and give what each gives alone: ``where(text).changes()``. Of a
        stream they are a query, which follows the set while it runs: each micro-batch has the
        alarms of the moment it starts. A new alarm sees the segments from there on; what held of
        one that is removed or replaced is told as over where it was last known to hold.

        Args:
            alarms: their conditions are as of ``where``. Those on keys compare keys with constants.
            **options: of a stream, how it is learned what alarms share; see
                ``eddyline.options.AlarmOptions``.

        Returns:
            ``alarm``, the keys, ``since`` and ``until``, and the attributes and their
            ``err_<attribute>`` at ``since``.

        Raises:
            QueryError: an alarm does not fit these segments; the message names it.
            NotSupportedError: no comparison of polynomials says the same.
            OptionError: a key is called ``alarm``, or an option that there is not.

        Example:
            >>> segments.alarms(el.AlarmSet({"fast": "d(x) > 3 AND ship <> 7"}))  # doctest: +SKIP
        """
        if not isinstance(alarms, AlarmSet):
            msg = f"alarms takes an el.AlarmSet, got {type(alarms).__name__}"
            raise QueryError(msg, got=type(alarms).__name__)
        AlarmOptions.of(**options)
        if self._graph.is_streaming:
            return query_of(self._graph, partial(AlarmStep, alarms=alarms), options)
        graph = precise(self._graph)
        session = graph.sources[0].df.sparkSession
        keys = session.createDataFrame([], StructType(graph.key_fields))
        binder = AlarmBinder(keys, graph.shape)
        asked = graph.then(AlarmRanges(binder.read(alarms.now()[1]))).then(Changes())
        return laid(*asked.placed, MADE).drop(DEFINITION)
