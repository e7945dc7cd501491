"""The inputs of the benchmarks: seeded, and versioned by name.

A workload never changes: other rows, other costs or another shape is another version with its own
scenarios.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from benchmarks.filters.simulated_loop import Stream
from benchmarks.harness.needs import data_folder
from eddyline.data.arrays import Floats
from eddyline.query.predicates import Arrays, FunctionPredicate, predicate
from eddyline.testing.generators import CorrelatedStream
from eddyline.testing.reference_orders import histogram

CHEAP_NS = 20.0
"""Declared cost of a comparison of numbers, for counted scenarios."""

REGEX_NS = 1000.0
"""Declared cost of a regex over a short text."""


def correlated_v1(
    pass_fracs: tuple[float, ...], group_size: int, n_rows: int, seed: int, costs: Floats
) -> Stream:
    """Rows of the thesis' correlation model [Babu05 4.7] with declared costs."""
    generator = CorrelatedStream(pass_fracs=pass_fracs, group_size=group_size, seed=seed)
    return Stream(~generator.passes(n_rows), costs)


def exact_histogram(pass_fracs: tuple[float, ...], group_size: int) -> Floats:
    """Return the probability of each outcome code of ``correlated_v1`` ((2^F,))."""
    return histogram(CorrelatedStream(pass_fracs=pass_fracs, group_size=group_size).exact())


SPREAD_FRACS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Pass fractions of the adaptivity experiments, permuted at every change. The thesis says only
that they differ."""


def redundant_proxy_v1(n_rows: int, seed: int, independent_ns: float = REGEX_NS) -> Stream:
    """One cheap 30 % predicate, three regexes that it implies, one independent 30 % regex.

    Filter 0 is cheap; filters 1 to 3 are regexes that pass exactly where it does; filter 4 is the
    independent regex. Behind filter 0 the three drop nothing and filter 4 still drops 70 %, yet one
    by one all four regexes drop 70 %. [DataFusion predicate_eval, correlation q73]
    """
    rng = np.random.default_rng([seed, 1])
    proxy, independent = rng.random((2, n_rows)) < 0.3
    drops = ~np.stack([proxy, proxy, proxy, proxy, independent], axis=1)
    return Stream(drops, np.array([CHEAP_NS, *[REGEX_NS] * 3, independent_ns]))


def late_drift_pair_v1(n_rows: int, seed: int) -> list[Stream]:
    """Two predicates of equal cost; the one that passes 0.1 % and the one that passes half swap.

    [DataFusion predicate_eval, drift q82]
    """
    rng = np.random.default_rng([seed, 2])
    half = n_rows // 2
    costs = np.full(2, REGEX_NS)
    fracs = np.array([[0.001, 0.5], [0.5, 0.001]])
    return [Stream(rng.random((half, 2)) >= fracs[phase], costs) for phase in (0, 1)]


def late_drift_v1(n_rows: int, seed: int) -> list[Stream]:
    """Five regexes; half-way the one that passes 2 % passes 90 % and another one passes 2 %."""
    rng = np.random.default_rng([seed, 3])
    half = n_rows // 2
    costs = np.full(5, REGEX_NS)
    fracs = np.array([[0.02, 0.6, 0.7, 0.8, 0.9], [0.9, 0.6, 0.7, 0.8, 0.02]])
    return [Stream(rng.random((half, 5)) >= fracs[phase], costs) for phase in (0, 1)]


def skewed_partitions_v1(n_partitions: int, n_rows: int, seed: int) -> list[Stream]:
    """Partitions of four regexes; in each another one passes 2 % and the others 50 to 90 %."""
    rng = np.random.default_rng([seed, 4])
    costs = np.full(4, REGEX_NS)
    partitions = []
    for number in range(n_partitions):
        fracs = np.roll([0.02, 0.5, 0.7, 0.9], number)
        partitions.append(Stream(rng.random((n_rows, 4)) >= fracs, costs))
    return partitions


def log_lines_v1(n_rows: int, seed: int = 0, *, fracs: tuple[float, ...] | None = None) -> pa.Table:
    """Rows with a text column of about 130 characters that holds up to five markers.

    Marker k is there in ``fracs[k]`` of the rows (``LOG_FRACS`` if omitted), independently. The
    markers stand behind words that are in every row and change places from row to row, so that the
    regexes of ``LOG_REGEXES`` scan about equally much and cost about the same.
    """
    rng = np.random.default_rng([seed, 5])
    words = np.array(["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"])
    parts = [pa.array(words[rng.integers(len(words), size=n_rows)]) for _ in range(8)]
    marked = []
    for marker, frac in zip(LOG_MARKERS, fracs or LOG_FRACS, strict=True):
        there = pa.array(rng.random(n_rows) < frac)
        number = pc.cast(pa.array(rng.integers(1000, 9999, size=n_rows)), pa.string())
        marked.append(pc.binary_join_element_wise(pc.if_else(there, marker, "none"), number, " "))
    turn = rng.integers(len(marked), size=n_rows)
    parts += [pc.choose((turn + slot) % len(marked), *marked) for slot in range(len(marked))]
    line = pc.binary_join_element_wise(*parts, " ")
    return pa.table(
        {
            "id": np.arange(n_rows),
            "line": line,
            "level": rng.integers(0, 100, size=n_rows),
            "size": rng.random(n_rows) * 1000.0,
        }
    )


LOG_MARKERS = ("user", "host", "path", "code", "term")
LOG_FRACS = (0.95, 0.9, 0.8, 0.5, 0.05)
"""Share of rows with each marker: in this order the conjunction of ``LOG_REGEXES`` is at its
worst, in the opposite order at its best."""

LOG_REGEXES = tuple(f"[a-z0-9]+ {marker} [0-9]+" for marker in LOG_MARKERS)
"""One regex per marker, about equally expensive."""


def regex_predicates(
    arrays: Arrays, regexes: Sequence[str] = LOG_REGEXES, *, case: bool = True
) -> list[FunctionPredicate]:
    """Return regexes over ``line`` as functions.

    Args:
        arrays: ``arrow``: by Arrow's compiled kernel, some 60 to 100 ns a row; ``pandas``: about a
            microsecond a row, and 2.5 where they ignore the case.
        regexes: the regexes.
        case: whether they heed it.
    """
    return [
        predicate(fn, reads=["line"], name=f"regex {number}", arrays=arrays)
        for number, fn in enumerate(regex_functions(arrays, regexes, case=case))
    ]


def regex_functions(
    arrays: Arrays, regexes: Sequence[str] = LOG_REGEXES, *, case: bool = True
) -> list[Callable[[Any], Any]]:
    """Return the functions of ``regex_predicates``."""

    def matching(regex: str) -> Callable[[Any], Any]:
        if arrays == "arrow":
            return lambda line: pc.match_substring_regex(line, regex)
        return lambda line: line.str.contains(regex, case=case)

    return [matching(regex) for regex in regexes]


@dataclass(frozen=True, slots=True)
class Condition:
    """One predicate of a rule: its text, its declared cost, and its outcome on the rows."""

    text: str
    cost_ns: float
    passes: Callable[[pa.Table], pa.ChunkedArray]


SIGNS = {">": pc.greater, "<": pc.less, "<=": pc.less_equal, "=": pc.equal}


def _number(column: str, sign: str, bound: float) -> Condition:
    text = f"{column} {sign} {bound:g}"
    return Condition(text, 10.0, lambda table: SIGNS[sign](table[column], bound))


def _text(column: str, value: str) -> Condition:
    return Condition(f"{column} = '{value}'", 25.0, lambda table: pc.equal(table[column], value))


def _one_of(column: str, *values: str) -> Condition:
    text = f"{column} IN ({', '.join(map(repr, values))})"
    kept = pa.array(values, pa.large_string())
    return Condition(text, 80.0, lambda table: pc.is_in(table[column], value_set=kept))


def _matches(column: str, regex: str) -> Condition:
    return Condition(
        f"{column} RLIKE '{regex}'",
        400.0,
        lambda table: pc.match_substring_regex(table[column], regex),
    )


INTRUSION_RULES_V1: dict[str, tuple[Condition, ...]] = {
    "smurf": (
        _matches("service", "^ec[or]_i$"),
        _number("dst_host_same_src_port_rate", ">", 0.9),
        _number("src_bytes", ">", 500),
        _text("protocol_type", "icmp"),
        _number("count", ">", 300),
    ),
    "neptune": (
        _number("dst_host_serror_rate", ">", 0.8),
        _matches("flag", "^S[0-3]$"),
        _number("same_srv_rate", "<", 0.3),
        _number("count", ">", 100),
        _number("logged_in", "=", 0),
        _text("protocol_type", "tcp"),
    ),
    "satan": (
        _text("protocol_type", "tcp"),
        _one_of("flag", "REJ", "RSTO", "RSTR"),
        _number("diff_srv_rate", ">", 0.05),
        _number("dst_host_srv_count", "<", 50),
        _number("rerror_rate", ">", 0.5),
    ),
    "warezclient": (
        _matches("service", "^(ftp|ftp_data|http)$"),
        _text("flag", "SF"),
        _number("logged_in", "=", 1),
        _number("hot", ">", 0),
        _number("duration", ">", 10),
    ),
    "back": (
        _text("protocol_type", "tcp"),
        _matches("flag", "^(SF|RSTR|S1)$"),
        _text("service", "http"),
        _number("src_bytes", ">", 50_000),
    ),
    "slow_mail": (
        _number("serror_rate", "<=", 0.1),
        _number("dst_host_count", ">", 100),
        _one_of("service", "smtp", "pop_3", "imap4", "finger", "telnet"),
        _matches("flag", "^(SF|S1|RSTO)$"),
        _number("dst_host_same_srv_rate", "<", 0.9),
        _number("count", "<", 20),
    ),
}
"""Conjunctions like those of intrusion rules, over the columns of KDD Cup 1999."""


KDD_CUP = "intrusion/kddcup_10_percent.parquet"
"""Where the rows of KDD Cup 1999 (10 %) are in the folder of data."""


def intrusion_v1() -> pa.Table:
    """Return the rows of KDD Cup 1999 in their order."""
    return parquet.read_table(data_folder() / KDD_CUP).sort_by("row_id")


def intrusion_stream(table: pa.Table, rule: tuple[Condition, ...]) -> Stream:
    """Return what the predicates of a rule drop, with their declared costs."""
    passes = [pc.fill_null(each.passes(table), False).combine_chunks() for each in rule]
    drops = ~np.stack([each.to_numpy(zero_copy_only=False) for each in passes], axis=1)
    return Stream(drops, np.array([each.cost_ns for each in rule]))
