"""Our automaton beside ``ahocorasick_rs``, the well-kept library (docs/decisions/0008).

Both find all patterns that the published Sigma rules look for anywhere in a command line, in all
real command lines, and say which pattern is in which row, as arrays. The library is given what it
likes best: bytes, in lower case already, its fastest kind of automaton.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved, paired_ratio, seconds_of
from benchmarks.rules.data import rules_folder, sigma_folder
from eddyline.data.arrays import Ints
from eddyline.query.conditions import TextTest
from eddyline.rules.compile.patterns import Hits, construct_of, find
from eddyline.sigma import read
from eddyline.sql.regexes import Wild

Found = Ints
"""Row and pattern of each hit ((2, hits)), each pair once, sorted."""

COLUMN = "CommandLine"


def contained(columns: dict[str, str]) -> list[TextTest]:
    """Return what the rules look for anywhere in the command line, in lower case."""
    found: dict[TextTest, None] = {}
    for source in read(rules_folder(), restrict=False).sources:
        for node in source.bind(columns, ansi=True).tree.walk():
            if isinstance(node, TextTest) and node.folded and node.operand.columns == (COLUMN,):
                is_inside = len(node.parts) == 3 and isinstance(node.parts[0], Wild)
                if is_inside and isinstance(node.parts[1], str) and node.parts[2] == Wild("%"):
                    found.setdefault(node)
    return list(found)


def by_ours(texts: pa.Array, tests: list[TextTest]) -> Callable[[], Found]:
    """Return what finds the patterns by our automaton."""
    construct = construct_of(tests[0].operand, tests, 0, folded=True)
    n_rows = len(texts)
    rows = np.arange(n_rows)
    stamps = np.zeros(len(tests), np.int64)
    ticks = iter(range(1, 1 << 62, n_rows))

    def run() -> Found:
        hits = Hits(1, n_rows)
        starts, ends = hits.starts, hits.ends
        find(construct, construct.texts(texts), rows, hits, starts, ends, stamps, next(ticks))
        return np.stack([np.repeat(rows, ends[0] - starts[0]), hits.patterns[: hits.n_hits]])

    return run


def by_library(texts: pa.Array, tests: list[TextTest], kind: str) -> dict[str, Callable[[], Found]]:
    """Return what finds them by the library: a call per text, and one for the whole column."""
    import ahocorasick_rs  # noqa: PLC0415

    patterns = [str(test.parts[1]).encode() for test in tests]
    automaton = ahocorasick_rs.BytesAhoCorasick(
        patterns, implementation=getattr(ahocorasick_rs.Implementation, kind)
    )
    each = [text or b"" for text in pc.utf8_lower(texts).cast(pa.binary()).to_pylist()]
    whole = b"\0".join(each)
    ends = np.cumsum([len(text) + 1 for text in each])

    def by_text() -> Found:
        found = [automaton.find_matches_as_indexes(text, overlapping=True) for text in each]
        counts = [len(hits) for hits in found]
        flat = np.array([hit[0] for hits in found for hit in hits], np.int64)
        return np.stack([np.repeat(np.arange(len(each)), counts), flat])

    def by_column() -> Found:
        hits = np.array(automaton.find_matches_as_indexes(whole, overlapping=True), np.int64)
        return np.stack([ends.searchsorted(hits[:, 1], "right"), hits[:, 0]])

    return {"a call per text": by_text, "a call for the column": by_column}


def once(found: Found) -> Found:
    """Return hits sorted, each pair of row and pattern once."""
    return np.unique(found, axis=1)


def automaton(settings: Settings) -> Measurement:
    """Time per row; the library's fastest way counts."""
    table = parquet.read_table(sigma_folder() / "process_creation.parquet", columns=[COLUMN])
    texts = table[COLUMN].combine_chunks().cast(pa.string())
    tests = contained({COLUMN: "string"})
    variants: dict[str, Callable[[], Found]] = {"ours": by_ours(texts, tests)}
    for kind in ("DFA", "ContiguousNFA"):
        for name, run in by_library(texts, tests, kind).items():
            variants[f"{kind}, {name}"] = run
    found = {name: once(run()) for name, run in variants.items()}
    for name, hits in found.items():
        told = f"{name} finds {hits.shape[1]} hits, ours {found['ours'].shape[1]}"
        assert np.array_equal(hits, found["ours"]), told
    times = interleaved(variants, settings.pick(9, 3), clock=time.process_time)
    best = min((name for name in times if name != "ours"), key=lambda name: times[name].median)
    us = {name: [second / len(texts) * 1e6 for second in t.seconds] for name, t in times.items()}
    told = ", ".join(f"{name} {median(each):.2f} ({spread(each)})" for name, each in us.items())
    note = (
        f"µs per row: {told}; {len(tests):,} patterns, {len(texts):,} texts, "
        f"{found['ours'].shape[1]:,} hits, the same"
    )
    details: dict[str, Any] = {**seconds_of(times), "n_patterns": len(tests)}
    return Measurement(paired_ratio(times[best], times["ours"]), note, details)


RUNS: Runs = {"sharing_automaton": automaton}
