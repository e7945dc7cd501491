"""What a task observed counts once, however often it was tried."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eddyline.options import SharingOptions
from eddyline.query.rules.sources import SqlRule
from eddyline.rules.profile import SharingProfile
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.reports import MAX_ENTRIES, TaskReport
from eddyline.spark.rules.operator import RulePipeline

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def pipeline(spark):
    sources = (SqlRule("one", "id = 1"), SqlRule("two", "id > 1"))
    return RulePipeline(spark.range(1), sources, SharingOptions(), "rules", skips=False)


def report(pipeline, partition, attempt, n_rows, n_entries=0):
    profile = replace(
        SharingProfile.empty(pipeline.loop.program),
        n_rows=n_rows,
        matches=np.array([n_rows, 0]),
    )
    entry = JournalEntry(0, "rules", "sharing", "a", "b", {"why": "a test"})
    kept = (entry,) * min(n_entries, MAX_ENTRIES)
    return TaskReport("rules", partition, attempt, profile, kept, n_entries).to_bytes()


def test_the_last_attempt_counts(pipeline):
    packed = [report(pipeline, *each) for each in ((0, 0, 10), (1, 0, 100), (0, 1, 7), (1, 0, 100))]
    pipeline.learn_packed(packed, 3)
    assert pipeline.loop.total.n_rows == 107
    assert pipeline.loop.total.matches.tolist() == [107, 0]
    pipeline.learn_packed([], 4)
    assert pipeline.loop.total.n_rows == 107
    pipeline.learn_packed(packed[:1], 5)  # another batch
    assert pipeline.loop.total.n_rows == 117


def test_entries_that_were_left_out_are_counted(pipeline):
    n_entries = MAX_ENTRIES + 7
    pipeline.learn_packed([report(pipeline, 2, 0, 10, n_entries)], 3)
    entries = pipeline.take_entries()
    assert len(entries) == MAX_ENTRIES + 1
    assert entries[-1].evidence == {"partition": 2, "n_entries": 7}
    assert {each.evidence["partition"] for each in entries} == {2}
    assert pipeline.take_entries() == []
