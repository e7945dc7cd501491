"""What a task observed counts once, however often it was tried; decisions say where they were."""

from __future__ import annotations

from eddyline.runtime.journal import (
    MAX_ENTRIES,
    Decisions,
    JournalEntry,
    TaskReport,
    decisions_of,
    newest_attempts,
)

ENTRY = JournalEntry(0, "rules", "sharing", "a", "b", {"why": "a test"})


def packed(partition, attempt, profile, component="rules"):
    return TaskReport(component, partition, attempt, profile).to_bytes()


def test_the_newest_attempt_of_a_task_counts():
    reports = newest_attempts(
        [
            packed(1, 0, "once"),
            packed(0, 0, "failed"),
            packed(0, 1, "again"),
            packed(1, 0, "twice"),
            packed(0, 0, "other", component="arrow"),
        ]
    )
    assert [(each.component, each.partition, each.profile) for each in reports] == [
        ("arrow", 0, "other"),
        ("rules", 0, "again"),
        ("rules", 1, "twice"),
    ]
    assert newest_attempts([]) == []


def test_decisions_have_their_partition_and_those_left_out_are_counted():
    decisions = Decisions()
    decisions.add([ENTRY] * (MAX_ENTRIES + 7))
    report = TaskReport("rules", 2, 0, None, tuple(decisions.newest), decisions.n)
    found = decisions_of([TaskReport("rules", 1, 0, None), report], 3)
    assert len(found) == MAX_ENTRIES + 1
    assert found[0].evidence == {"why": "a test", "partition": 2}
    assert ENTRY.evidence == {"why": "a test"}
    assert (found[-1].event, found[-1].batch_id) == ("left_out", 3)
    assert found[-1].evidence == {"partition": 2, "n_entries": 7}
