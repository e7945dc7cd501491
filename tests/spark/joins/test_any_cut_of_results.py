"""Joins of results of aggregates: any stream, cut into any batches, gives what DuckDB says."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

import eddyline as el
from tests.examples import examples
from tests.spark.aggregates.aggregate_streams import ended
from tests.spark.aggregates.test_composed import SECOND, T0, answers, of_duckdb
from tests.spark.joins.join_streams import stream_of, write_batch
from tests.spark.joins.test_made_inputs import MINUTES, counts, made

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # jobs are slow
BELOW = 600


@dataclass(frozen=True)
class Case:
    """A stream that is joined with windows of itself, and these with each other."""

    batches: tuple[tuple[tuple[int, int | None, int], ...], ...]
    """Instant (µs), group and value of each row, none more than a second late."""
    slides: tuple[int, int]
    """The windows of both aggregates (s); the first is of values below ``BELOW``."""
    ranges: tuple[int, int]
    """How long results of each are joined (s)."""

    @property
    def low(self) -> int:
        """The instant before which all rows have come (µs)."""
        return max(at for rows in self.batches for at, *_ in rows) - SECOND

    def write(self, folder: Path) -> None:
        """Write the batches."""
        for number, rows in enumerate(self.batches):
            instants, groups, values = zip(*rows, strict=True)
            columns = {
                "ts": pa.array(instants, pa.timestamp("us", "UTC")),
                "k": pa.array(groups, pa.int32()),
                "v": pa.array(values, pa.int64()),
            }
            write_batch(folder, "s", number, pa.table(columns))


@st.composite
def cases(draw):
    """Return streams of some seconds, with ties, NULL as a group, and gaps."""
    steps = st.sampled_from([0, 0, 100_000, 400_000, 1_000_000, 2_500_000])
    back = st.sampled_from([0, 0, 0, 300_000, 1_000_000])
    n = draw(st.integers(8, 40))
    bases = accumulate(draw(st.lists(steps, min_size=n, max_size=n)), initial=T0)
    rows = [
        (base - draw(back), draw(st.sampled_from([None, 0, 1])), draw(st.integers(0, 999)))
        for base in bases
    ]
    edges = [0, *sorted(draw(st.sets(st.integers(1, n - 1), max_size=3))), len(rows)]
    batches = tuple(tuple(rows[a:b]) for a, b in pairwise(edges))
    pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
    return Case(batches, draw(pairs), draw(pairs))


def wanted(case, folder, text):
    views = ", ".join([counts("f", case.slides[0], BELOW), counts("a", case.slides[1], 1000)])
    return of_duckdb(folder, f"WITH {views} {text}")


@pytest.mark.large
@given(case=cases(), options=st.sampled_from([{}, {"adaptive": False}]))
@examples(6, phases=PHASES)
def test_aggregates_meet_aggregates_and_rows(spark, case, options):
    first, second = case.ranges
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case.write(folder)
        engine = el.Engine(spark)
        for each in ("s", "t"):
            stream = stream_of(spark, folder, "s")
            engine.stream(each, stream, time="ts", lateness="1 second")
        made(engine, "few", MINUTES.format(case.slides[0], BELOW), "e")
        made(engine, "all", MINUTES.format(case.slides[1], 1000), "e")
        both = engine.query(
            "SELECT f.k, f.e AS fe, a.e AS ae, f.n AS fn, a.s AS s FROM "
            f"few f [RANGE {first} SECONDS], all a [RANGE {second} SECONDS] WHERE f.k = a.k",
            name="both",
            **options,
        )
        rows = engine.query(
            "SELECT f.k, f.e AS fe, f.n AS fn, t.v AS v FROM "
            f"few f [RANGE {first} SECONDS], t [RANGE {second} SECONDS] WHERE f.k = t.k",
            name="rows",
            **options,
        )
        found = [answers(ended(each)) for each in (both, rows)]
        of_both = (
            "SELECT f.k, f.e, a.e, f.n, a.s FROM f JOIN a ON f.k = a.k AND a.at - f.at BETWEEN "
            f"-{second * SECOND} AND {first * SECOND} WHERE greatest(f.e, a.e) <= {case.low}"
        )
        of_rows = (
            "SELECT f.k, f.e, f.n, s.v FROM f JOIN s ON f.k = s.k AND s.t - f.at BETWEEN "
            f"-{second * SECOND} AND {first * SECOND} WHERE f.e <= {case.low}"
        )
        assert found == [wanted(case, folder, text) for text in (of_both, of_rows)], case
