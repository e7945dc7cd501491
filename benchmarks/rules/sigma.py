"""Published Sigma rules over real process creations, replicated with varied values.

Needs the folder ``sigma`` of ``EDDYLINE_DATA``: 1,183 rules and 8,534 events. What Spark does is
measured in processes of their own, each with a session that nothing else has warmed up.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession

import eddyline as el
from benchmarks.filters.stock_udfs import arrow_crossing
from benchmarks.harness.isolated import alone, pin
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import cached, noop, workers_peak_bytes
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import Times, interleaved, seconds_of, times_told
from benchmarks.rules.data import rules_folder, sigma_files
from benchmarks.rules.forms import (
    counts_by_statement,
    differing,
    forms,
    ours_by_rule,
    pairs_in,
)
from benchmarks.rules.written import (
    LOWER,
    CannotWriteError,
    folded_columns,
    polars_expression,
    spark_sql,
)
from eddyline.query.conditions import Rule
from eddyline.spark.session import session

if TYPE_CHECKING:  # its import is part of what ``sharing_sigma_start`` times
    from eddyline.spark.rules.rule_set import RuleSet

HERE = "benchmarks.rules.sigma"


def _session(master: str) -> SparkSession:
    # Spark's code generator gives up on large statements in ways that it logs as errors.
    conf = {"spark.driver.memory": "6g", "spark.log.level": "OFF"}
    return session(conf, master=master, app="eddyline benchmarks")


def _rules(**options: Any) -> RuleSet:
    return el.sigma.load(rules_folder(), **options)


def throughput_alone(folder: str, master: str, core: int | None, n_runs: int) -> dict[str, Any]:
    """Time all rules over cached events; the first run is left out."""
    if core is not None:
        pin(core)
    spark = _session(master)
    events, rules = cached(folder, spark), _rules()
    files = spark.read.parquet(folder)

    def matched(df: DataFrame) -> DataFrame:
        return df.transform(rules.matches("found"))

    variants: dict[str, Callable[[], None]] = {
        "ids and matches": lambda: noop(matched(events).select("event_id", "found")),
        "whole events that match": lambda: noop(matched(events)),
        "from Parquet files": lambda: noop(matched(files).select("event_id", "found")),
        "columns to Python and back": lambda: noop(_there_and_back(events)),
    }
    times = interleaved(variants, n_runs)
    return {
        "n_rows": events.count(),
        "n_matches": pairs_in(matched(events)),
        "seconds": seconds_of(times),
        "worker_peak_bytes": max(workers_peak_bytes(spark), default=0),
        "plan": rules.explain(),
    }


def _there_and_back(df: DataFrame) -> DataFrame:
    """Hand the columns that the rules look at to a function that does nothing."""
    from eddyline.rules.compile.program import compile_rules  # noqa: PLC0415
    from eddyline.spark.analysis import operand  # noqa: PLC0415

    columns = compile_rules(_bound(df, restrict="auto")).columns
    return df.select("event_id", arrow_crossing()(*(operand(df, text) for text in columns)))


def _bound(df: DataFrame, restrict: str | bool = False) -> list[Rule]:
    """Return the trees of all rules over a DataFrame."""
    from eddyline.sigma import read  # noqa: PLC0415
    from eddyline.spark.analysis import column_types  # noqa: PLC0415

    found = read(rules_folder(), restrict=restrict)
    return [source.bind(column_types(df), ansi=True) for source in found.sources]


def throughput(settings: Settings) -> Measurement:
    """Events per second on one core that JVM and Python share, and beside it on all cores."""
    n_rows = settings.pick(1_000_000, 100_000)
    n_runs = settings.pick(5, 2)
    folder = str(sigma_files(n_rows))

    def rate(found: dict[str, Any], name: str) -> float:
        return float(n_rows / median(found["seconds"][name]))

    where = f"{HERE}:throughput_alone"
    pinned = alone(where, folder=folder, master="local[1]", core=0, n_runs=n_runs)
    loose = alone(where, folder=folder, master="local[1]", core=None, n_runs=n_runs)
    both = alone(where, folder=folder, master="local[2]", core=None, n_runs=n_runs)
    value = rate(pinned, "ids and matches")
    rates = ", ".join(f"{name} {rate(pinned, name):,.0f}" for name in pinned["seconds"])
    slowest, fastest = (n_rows / pick(pinned["seconds"]["ids and matches"]) for pick in (max, min))
    note = (
        f"{n_rows:,} events, pinned to one core: {rates} ({slowest:,.0f}…{fastest:,.0f}); one task "
        f"not pinned {rate(loose, 'ids and matches'):,.0f}, two tasks "
        f"{rate(both, 'ids and matches'):,.0f}; worker at most "
        f"{pinned['worker_peak_bytes'] / 1e6:,.0f} MB; {pinned['n_matches']:,} matches"
    )
    return Measurement(value, note, {"pinned": pinned, "one_task": loose, "two_tasks": both})


def jobs_alone(folder: str, n_jobs: int, crossing: bool = False) -> dict[str, Any]:
    """Time the jobs of a process that matches all rules to the events of Parquet files.

    Args:
        folder: the files.
        n_jobs: how many jobs.
        crossing: the columns that the rules look at go to Python and back, and are not looked at.
    """
    events = _session("local[2]").read.parquet(folder)
    matched = events.transform(_rules().matches("found")).select("event_id", "found")
    df = _there_and_back(events) if crossing else matched
    seconds = []
    for _ in range(n_jobs):
        started = time.perf_counter()
        noop(df)
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds}


def cold(settings: Settings) -> Measurement:
    """Time of a process's first job over that of its sixth, kernels and rules compiled before."""
    folder = str(sigma_files(settings.pick(400_000, 50_000)))

    def jobs(**given: Any) -> list[float]:
        return list(alone(f"{HERE}:jobs_alone", folder=folder, **given)["seconds"])

    jobs(n_jobs=1)
    n_jobs, n_runs = settings.pick(6, 2), settings.pick(3, 1)
    ours = [jobs(n_jobs=n_jobs) for _ in range(n_runs)]
    floor = [jobs(n_jobs=n_jobs, crossing=True) for _ in range(n_runs)]
    value, least = (median(run[0] / run[-1] for run in runs) for runs in (ours, floor))
    told = "; ".join(" ".join(f"{each:.2f}" for each in run) for run in ours)
    first = median(run[0] for run in floor)
    note = f"s by job: {told}; columns to Python and back alone {least:.2f} (first {first:.2f} s)"
    return Measurement(value, note, {"jobs": ours, "there_and_back": floor})


def lowered(df: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Return rows with the lower-cased columns beside the others, cached."""
    found = df.selectExpr("*", *(f"lower({c}) AS {LOWER}{c}" for c in folded_columns(rules)))
    found = found.cache()
    found.count()
    return found


def _written(
    rules: Iterable[Rule], write: Callable[[Any], Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the conditions of rules, and why the others cannot be written."""
    conditions, reasons = {}, {}
    for rule in rules:
        try:
            conditions[rule.name] = write(rule.tree)
        except CannotWriteError as error:
            reasons[rule.name] = str(error)[:200]
    return conditions, reasons


N_PROBED = 40
"""Rules, about, on which the fastest form of a statement is chosen."""


def _found(events: DataFrame, rules: RuleSet) -> DataFrame:
    return events.transform(rules.matches("found")).select("event_id", "found")


def spark_sql_alone(folder: str, larger: str) -> dict[str, Any]:
    """Time all rules by the form of Spark SQL that is the fastest for some of them, and by us.

    One after the other and not in turns: Spark ends workers that have nothing to do for a minute,
    which is less than what Spark SQL takes, so ours would start anew for each run.
    """
    spark = _session("local[2]")
    events = cached(folder, spark)
    rules = _rules(restrict=False)
    bound = _bound(events)
    conditions, unsaid = _written(bound, spark_sql)
    prepared = lowered(events, bound)
    some = {name: conditions[name] for name in list(conditions)[:: len(conditions) // N_PROBED]}
    probed = interleaved(forms(prepared, some), 1)
    best = min(probed, key=lambda name: probed[name].median)
    theirs, mine = counts_by_statement(prepared, conditions, 10), ours_by_rule(rules, events)
    times = interleaved({"Spark SQL": forms(prepared, conditions)[best]}, 1)

    times |= interleaved({"eddyline": lambda: noop(_found(events, rules))}, 5)
    prepared.unpersist()
    more = cached(larger, spark)
    many = interleaved({"eddyline": lambda: noop(_found(more, rules))}, 3)
    return {
        **_outcome(events, best, theirs, mine, unsaid, times),
        "probed": {name: each.median for name, each in probed.items()},
        "n_rows_more": more.count(),
        "seconds_more": seconds_of(many),
    }


def _outcome(
    events: DataFrame,
    form: str,
    counts: dict[str, int],
    ours: dict[str, int],
    unsaid: dict[str, str],
    times: dict[str, Times],
) -> dict[str, Any]:
    """Return what a peer found and how long both took, as plain values for another process."""
    return {
        "n_rows": events.count(),
        "form": form,
        "n_compared": len(counts),
        "n_matches": sum(counts.values()),
        "unsaid": unsaid,
        "different": differing(ours, counts),
        "seconds": seconds_of(times),
    }


def _compared(found: dict[str, Any], peer: str) -> Measurement:
    """Return our rate over a peer's; rules with other counts fail unless they are explained."""
    different = found["different"]
    assert not different, f"other counts of {len(different)} rules: {different}"
    times = {name: Times(tuple(each)) for name, each in found["seconds"].items()}
    gain = times[peer].median / times["eddyline"].median
    rates = ", ".join(f"{n} {found['n_rows'] / t.median:,.0f}/s" for n, t in times.items())
    note = (
        f"{found['n_rows']:,} events, {found['n_compared']:,} rules, {found['n_matches']:,} "
        f"matches, equal rule by rule; {peer} as {found['form']}; {rates}; {times_told(times)}"
    )
    return Measurement(gain, note, found)


def hand_tuned(settings: Settings) -> Measurement:
    """Columns lower-cased once, beforehand, and not timed."""
    folder = str(sigma_files(settings.pick(68_272, 25_602)))
    larger = str(sigma_files(settings.pick(1_000_000, 100_000)))
    found = alone(f"{HERE}:spark_sql_alone", folder=folder, larger=larger)
    same = _compared(found, "Spark SQL")
    rate = found["n_rows_more"] / median(found["seconds_more"]["eddyline"])
    theirs = found["n_rows"] / median(found["seconds"]["Spark SQL"])
    note = f"; eddyline over {found['n_rows_more']:,} {rate:,.0f}/s, {rate / theirs:,.0f} by rates"
    return Measurement(same.value, same.note + note, found)


def official(names: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the official conversion of each rule to Spark SQL, and why the others have none."""
    from sigma.backends.databricks.databricks import DatabricksBackend  # noqa: PLC0415
    from sigma.collection import SigmaCollection  # noqa: PLC0415

    known = set(names)
    backend, queries, reasons = DatabricksBackend(), {}, {}
    for path in sorted(Path(rules_folder()).rglob("*.yml")):
        collection = SigmaCollection.from_yaml(path.read_text("utf-8"))
        name = str(collection.rules[0].id)
        if name not in known:
            continue
        try:
            (queries[name],) = backend.convert(collection)
        except Exception as error:  # noqa: BLE001 - whatever it cannot do is listed
            reasons[name] = f"{type(error).__name__}: {error}"[:200]
    return queries, reasons


LONGEST = 300
"""Characters of the command lines on which all counts are compared with the official conversion's.

Its lists of texts become regular expressions that start with ``.*``: they take time with the
square of a text's length. All rules over 8,534 events, long ones included, had not ended after ten
minutes.
"""

N_COMPARED = 2_000
"""Events on which they are compared."""

N_TIMED = 100
"""Events that are timed, drawn from all: so few that ours take little more than a job does."""


def official_alone(folder: str) -> dict[str, Any]:
    """Time the official conversion, a statement of ten rules at a time, and ours."""
    events = cached(folder, _session("local[2]"))
    rules = _rules(restrict=False)
    queries, unsaid = official(rules.names)
    short = events.where(
        f"coalesce(length(CommandLine), 0) <= {LONGEST}"
        f" AND coalesce(length(ParentCommandLine), 0) <= {LONGEST}"
    )
    short = short.orderBy("event_id").limit(N_COMPARED).repartition(2).cache()
    counts, mine = counts_by_statement(short, queries, 10), ours_by_rule(rules, short)
    timed = events.orderBy("event_id").limit(N_TIMED).repartition(2).cache()
    timed.count()
    times = interleaved({"official": lambda: counts_by_statement(timed, queries, 10)}, 1)
    # By themselves, as beside Spark SQL: workers would start anew for each run.
    times |= interleaved({"eddyline": lambda: noop(_found(timed, rules))}, 5)
    n_true = sum(count > 0 for count in counts.values())
    ((longest,),) = timed.selectExpr("coalesce(max(length(CommandLine)), 0)").collect()
    form = (
        f"counts of 10 rules a statement (counts, {n_true} of them not 0, compared on "
        f"{short.count():,} short events; the longest that is timed has {longest:,} letters)"
    )
    return _outcome(timed, form, counts, mine, unsaid, times)


def beside_official(settings: Settings) -> Measurement:
    """Short events for the counts, a few of any length for the times."""
    folder = str(sigma_files(settings.pick(8_534, 8_534)))
    found = alone(f"{HERE}:official_alone", folder=folder)
    return _compared(found, "official")


def polars_alone(folder: str, n_runs: int) -> dict[str, Any]:
    """Time one expression a rule in Polars, all in one query, and ours."""
    events = cached(folder, _session("local[2]"))
    rules = _rules(restrict=False)
    bound = _bound(events)
    conditions, unsaid = _written(bound, polars_expression)
    frame = pl.read_parquet(f"{folder}/*.parquet")
    frame = frame.with_columns(
        pl.col(c).str.to_lowercase().alias(LOWER + c) for c in folded_columns(bound)
    )
    for name in list(conditions):
        with contextlib.suppress(pl.exceptions.PolarsError):
            frame.head(1).select(conditions[name])
            continue
        unsaid[name] = "Polars refuses the expression"
        del conditions[name]

    def counted() -> dict[str, int]:
        sums = [each.fill_null(value=False).sum().alias(n) for n, each in conditions.items()]
        return frame.lazy().select(sums).collect().row(0, named=True)

    theirs, mine = counted(), ours_by_rule(rules, events)
    times = interleaved(
        {"eddyline": lambda: noop(_found(events, rules)), "Polars": counted}, n_runs
    )
    return _outcome(events, "one query", theirs, mine, unsaid, times)


def beside_polars(settings: Settings) -> Measurement:
    """Columns lower-cased beforehand, and not timed; lists of texts searched for together."""
    folder = str(sigma_files(settings.pick(256_020, 25_602)))
    found = alone(f"{HERE}:polars_alone", folder=folder, n_runs=settings.pick(3, 1))
    return _compared(found, "Polars")


def start_alone(folder: str) -> dict[str, Any]:
    """Time the way from a folder of rules to the first matches, in a session that runs already."""
    spark = _session("local[2]")
    events = cached(folder, spark).limit(1_000).cache()
    events.count()
    started = time.perf_counter()
    rules = _rules()
    read_s = time.perf_counter() - started
    found = events.transform(rules.matches("found"))
    bound_s = time.perf_counter() - started
    n_matches = pairs_in(found)
    whole_s = time.perf_counter() - started
    return {
        "read_s": read_s,
        "compile_s": bound_s - read_s,
        "first_matches_s": whole_s - bound_s,
        "whole_s": whole_s,
        "n_rules": len(rules),
        "n_skipped": len(rules.skipped),
        "n_matches": n_matches,
        "worker_peak_bytes": max(workers_peak_bytes(spark), default=0),
    }


def start(settings: Settings) -> Measurement:
    """Without any cache of rules, with one, and on a machine that has no compiled kernels."""
    folder = str(sigma_files(settings.pick(25_602, 8_534)))
    found: dict[str, list[dict[str, Any]]] = {"cold": [], "warm": [], "no kernels": []}

    def once(kind: str, **environment: str) -> None:
        where = f"{HERE}:start_alone"
        found[kind].append(alone(where, environment=environment, folder=folder))

    for _ in range(settings.pick(3, 1)):
        with tempfile.TemporaryDirectory() as cache:
            once("cold", XDG_CACHE_HOME=cache)
            once("warm", XDG_CACHE_HOME=cache)
    with tempfile.TemporaryDirectory() as cache:
        once("no kernels", XDG_CACHE_HOME=cache, NUMBA_CACHE_DIR=cache)

    def told(kind: str) -> str:
        parts = {
            part: median(each[part] for each in found[kind])
            for part in ("whole_s", "read_s", "compile_s", "first_matches_s")
        }
        return (
            f"{kind} {parts['whole_s']:.2f} s (reading {parts['read_s']:.2f}, compiling "
            f"{parts['compile_s']:.2f}, first matches {parts['first_matches_s']:.2f})"
        )

    cold = found["cold"]
    value = max(each["whole_s"] for each in cold)
    peak = max(each["worker_peak_bytes"] for each in cold)
    note = (
        f"{cold[0]['n_rules']:,} rules, {cold[0]['n_skipped']} skipped; "
        + "; ".join(map(told, found))
        + f"; of three cold {spread(e['whole_s'] for e in cold)}; worker {peak / 1e6:,.0f} MB"
    )
    return Measurement(value, note, dict(found))


RUNS: Runs = {
    "sharing_sigma_throughput": throughput,
    "sharing_sigma_spark_sql": hand_tuned,
    "sharing_sigma_official": beside_official,
    "sharing_sigma_polars": beside_polars,
    "sharing_sigma_start": start,
    "sharing_sigma_cold": cold,
}
