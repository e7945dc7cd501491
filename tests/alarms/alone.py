"""What alarms give one by one: the reference for what they give together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from eddyline.alarms.alarm_set import read_alarm
from eddyline.alarms.program import program_of
from eddyline.alarms.ranges import AlarmRanges
from eddyline.models.segments import Keyed
from eddyline.models.solving.where import where
from eddyline.models.steps import Changes, Rows, result_table
from eddyline.models.windows import integrals


def unkeyed(texts):
    """Refuse conditions on keys: compiling them takes Spark."""
    raise AssertionError(texts)


def ranges_of(segments, texts, compiled=unkeyed, keys=("k",), **how):
    """Return the step of alarms, given by name, over segments with a key ``k``."""
    alarms = [read_alarm(name, each, [*segments.coefs], keys) for name, each in texts.items()]
    return AlarmRanges(program_of(alarms, compiled), **how)


def named(segments):
    """Return segments whose entities are called by their numbers."""
    n = int(segments.keys.max(initial=-1)) + 1
    return Keyed(segments, pa.table({"k": np.arange(n)}))


def together(segments, texts, **how):
    """Return the changes of all alarms and the profile of the block.

    Changes are sorted: alarm, entity, since, until and values.
    """
    found, observed = ranges_of(segments, texts, **how).watched(named(segments))
    rows = result_table(Changes().run(found), None).drop_columns(["__definition"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows), observed


def alone(segments, texts):
    """Return the same by asking for one alarm after the other."""
    found = []
    for name, text in texts.items():
        condition = read_alarm(name, text, [*segments.coefs], ("k",)).condition
        made = integrals.changes(segments if condition is None else where(segments, condition))
        table = result_table(Rows(made.starts, named(segments).entities, made.ends), None)
        found += [(name, *row.values()) for row in table.to_pylist()]
    return sorted(found)
