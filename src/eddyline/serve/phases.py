"""The time of batches taken apart, as a section."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.report.sections import Figure, Line, Section, Table, columns

if TYPE_CHECKING:
    from collections.abc import Mapping

WHOLE = "triggerExecution"
"""Spark's name for the time of a batch from its trigger to its commit."""

WORDS = {
    "latestOffset": "look for input",
    "getOffset": "look for input",
    "setOffsetRange": "look for input",
    "walCommit": "write down the input",
    "getBatch": "get the input",
    "queryPlanning": "plan",
    "addBatch": "operators and sink",
    "commitOffsets": "commit",
    "commitBatch": "commit",
}
"""Spark's names for the parts of a batch, in words."""

REST = "between them"

COLUMNS = columns("part, mean: ns, newest: ns, share: share")


def sections(phases: Mapping[int, Mapping[str, float]]) -> list[Section]:
    """Return what the newest batches did in their time, nothing if that is not known.

    Args:
        phases: seconds by batch and Spark's name of a part.
    """
    told = {batch_id: in_words(parts) for batch_id, parts in sorted(phases.items())}
    told = {batch_id: parts for batch_id, parts in told.items() if parts}
    if not told:
        return []
    names = list(dict.fromkeys(name for parts in told.values() for name in parts))
    newest = told[max(told)]
    sums = {name: sum(parts.get(name, 0.0) for parts in told.values()) for name in names}
    names.sort(key=lambda name: -sums[name])
    whole = sum(sums.values())
    rows = tuple(
        (
            name,
            1e9 * sums[name] / len(told),
            1e9 * newest.get(name, 0.0),
            sums[name] / whole if whole else None,
        )
        for name in names
    )
    lines = tuple(
        Line(name, tuple(1e9 * parts.get(name, 0.0) for parts in told.values())) for name in names
    )
    note = f"Of the newest {len(told)} batches, as Spark measures them."
    figure = Figure("Time of each part of a batch", tuple(told), lines, "ns")
    return [Section("time of batches", (Table(COLUMNS, rows, note), figure))]


def in_words(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the time of each part in words, and what is left of the whole.

    >>> in_words({"addBatch": 0.5, "walCommit": 0.1, "triggerExecution": 0.7})
    {'operators and sink': 0.5, 'write down the input': 0.1, 'between them': 0.1}
    """
    told: dict[str, float] = {}
    for name, seconds in parts.items():
        if name != WHOLE:
            words = WORDS.get(name, name)
            told[words] = round(told.get(words, 0.0) + seconds, 6)
    left = round(parts.get(WHOLE, 0.0) - sum(told.values()), 6)
    return {**told, REST: left} if told and left > 0.0 else told
