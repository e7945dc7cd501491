"""Synthetic rules by the thousand, beside Spark, DuckDB and Polars on the same rows.

Every engine is asked for the same thing, and its answer is compared: how many rows each rule is
true for, or which rules are true for each row.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.harness.isolated import alone, peak_bytes
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import cached, noop, workers_peak_bytes, written
from benchmarks.harness.timing import Times, interleaved, paired_ratio, seconds_of, times_told
from benchmarks.rules.data import (
    CODE_VALUES,
    DOMAIN,
    equality_rules_v1,
    mixed_rules_v1,
    range_rules_v1,
    rows_v1,
)
from benchmarks.rules.forms import (
    arrays_by_statement,
    by_operator,
    counts_by_statement,
    differing,
    ours_by_rule,
    pairs_in,
)
from eddyline.options import SharingOptions
from eddyline.query.rules.sources import rule_source
from eddyline.rules.choice import RuleChoice
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.plan import SharingProfile
from eddyline.runtime.journal import TaskReport
from eddyline.spark.rules.rule_set import RuleSet
from eddyline.spark.rules.task import RuleTask

Rules = dict[str, str]
Ways = dict[str, Callable[[], Any]]

KINDS: dict[str, Callable[..., dict[str, str]]] = {
    "ranges": range_rules_v1,
    "equalities": equality_rules_v1,
    "mixed": mixed_rules_v1,
}

HERE = "benchmarks.rules.numbers"


@cache
def rows_of(n_rows: int) -> DataFrame:
    """Return rows as a cached DataFrame of two partitions."""
    return cached(written(rows_v1(n_rows), n_files=2))


def _arrays(df: DataFrame, rules: RuleSet) -> None:
    noop(df.transform(rules.matches("found", keep_unmatched=True)).select("a0", "found"))


def statement(settings: Settings, n_rules: int, *, is_tuned: bool) -> Measurement:
    """Range rules beside the fastest single statements of Spark's.

    Two outputs are asked for, each of both engines: how many rows each rule is true for, and which
    rules are true for each row. The figure is the worse of the two. Spark's counts take it less
    than its arrays; what they take is told over our arrays, too.

    Args:
        settings: how much is run.
        n_rules: how many rules.
        is_tuned: whether Spark may run it operator by operator, without code for whole stages: an
            internal setting of the session, without which large statements fail to compile and
            fall back to being interpreted.
    """
    rules = range_rules_v1(n_rules)
    ours = RuleSet(rules)
    few, df = rows_of(20_000), rows_of(settings.pick(MOST_ROWS, 50_000))
    _check_equal(ours_by_rule(ours, few), counts_by_statement(few, rules, 20))
    times: dict[str, Times] = {}
    forms: dict[str, str] = {}
    own: Ways = {"counts": lambda: ours_by_rule(ours, df), "arrays": lambda: _arrays(df, ours)}
    for output, by_us in own.items():
        probed = interleaved(_ways(rows_of(50_000), rules, is_tuned=is_tuned)[output], 1)
        forms[output] = min(probed, key=lambda name: probed[name].median)
        by_spark = _ways(df, rules, is_tuned=is_tuned)[output][forms[output]]
        times |= interleaved(
            {f"eddyline, {output}": by_us, f"Spark, {output}": by_spark}, settings.pick(2, 1)
        )
    fresh = interleaved({"eddyline, new, arrays": lambda: _arrays(df, RuleSet(rules))}, 2)
    gains = {
        output: paired_ratio(times[f"Spark, {output}"], times[f"eddyline, {output}"])
        for output in forms
    }
    least = min(times[f"Spark, {output}"].median for output in forms)
    across = least / times["eddyline, arrays"].median
    told = ", ".join(f"{output} {gains[output]:.1f} (Spark {forms[output]})" for output in forms)
    note = (
        f"{df.count():,} rows, {len(rules)} rules of four ranges; same output: {told}; the "
        f"fastest statement of any output over our arrays {across:.1f}; "
        f"{times_told(times | fresh)}; counts equal, rule by rule, on 20,000 rows"
    )
    details = {**seconds_of(times | fresh), "gains": gains, "fastest over arrays": across}
    return Measurement(min(gains.values()), note, details)


def _ways(df: DataFrame, rules: Rules, *, is_tuned: bool) -> dict[str, Ways]:
    """Return the forms of a single statement that may be the fastest, by output."""
    n_rules = len(rules)
    ways: dict[str, Ways] = {
        "counts": {"one row of counts": lambda: counts_by_statement(df, rules, n_rules)},
        "arrays": {"one array a row": lambda: arrays_by_statement(df, rules, n_rules)},
    }
    if is_tuned:
        for forms in ways.values():
            forms |= {f"{name}, by operator": by_operator(df, way) for name, way in forms.items()}
    return ways


def _check_equal(ours: dict[str, int], theirs: dict[str, int]) -> None:
    different = differing(ours, theirs)
    told = dict(list(different.items())[:3])
    assert not different, f"other counts of {len(different)} rules: {told}"


SIZES = (10, 100, 500, 1_000, 10_000, 100_000)

MOST_ROWS = 1_000_000

MAX_PAIRS = {
    "eddyline": 1e10,
    "spark": 5e7,
    "spark, a job a rule": 5e7,
    "duckdb": 2e8,
    "polars": 2e8,
}
"""Rows times rules that an engine is asked for at most; a peer and ours always have equal rows."""

MAX_RULES = {"spark": 1_000, "spark, a job a rule": 500, "duckdb": 10_000, "polars": 10_000}
"""Rules from which on an engine takes minutes to plan a query, or runs out of stack."""

DUCKDB_RULES = 250
"""Rules of a statement of DuckDB's: planning takes more than in proportion (0.2 s of CPU for 250
rules, 1.3 s for 1,000, over 100 rows)."""

MANY_RULES = 500
"""Rules from which on a statement takes seconds, and is timed fewer times."""


def _peers(n_rows: int, rules: Rules) -> dict[str, Callable[[], dict[str, int]]]:
    """Return what counts the matches of each rule, by engine."""
    df = rows_of(n_rows)

    def of_jobs() -> dict[str, int]:
        return {name: df.where(text).count() for name, text in rules.items()}

    return {
        "spark": lambda: counts_by_statement(df, rules, 20),
        "spark, a job a rule": of_jobs,
        "duckdb": partial(_by_duckdb, n_rows, rules),
        "polars": partial(by_polars, n_rows, rules),
    }


@cache
def _table(n_rows: int) -> pa.Table:
    return rows_v1(n_rows)


@cache
def _database(n_rows: int) -> Any:
    import duckdb  # noqa: PLC0415 the process whose memory is measured does without

    database = duckdb.connect()
    database.execute("SET threads = 2")
    database.register("arriving", _table(n_rows))
    database.execute("CREATE TABLE rows AS SELECT * FROM arriving")
    return database


def _by_duckdb(n_rows: int, rules: Rules) -> dict[str, int]:
    names, counts = list(rules), []
    for start in range(0, len(names), DUCKDB_RULES):
        part = names[start : start + DUCKDB_RULES]
        chosen = ", ".join(f"count(*) FILTER (WHERE {rules[name]})" for name in part)
        counts += _database(n_rows).execute(f"SELECT {chosen} FROM rows").fetchone()
    return dict(zip(names, counts, strict=True))


@cache
def _frame(n_rows: int) -> Any:
    import polars as pl  # noqa: PLC0415 likewise

    return pl.from_arrow(_table(n_rows))


def by_polars(n_rows: int, rules: Rules) -> dict[str, int]:
    """Return the matches of each rule as Polars counts them, over rows in its memory."""
    return polars_counts(_frame(n_rows).lazy(), rules)


def polars_counts(rows: Any, rules: Rules) -> dict[str, int]:
    """Return the matches of each rule in the rows of a LazyFrame."""
    import polars as pl  # noqa: PLC0415 likewise

    sums = [pl.sql_expr(text).sum().alias(name) for name, text in rules.items()]
    found: dict[str, int] = rows.select(sums).collect().row(0, named=True)
    return found


def by_number(settings: Settings, kind: str) -> Measurement:
    """One kind of rule at every size."""
    sizes = SIZES[: settings.pick(len(SIZES), 4)]
    details = {
        str(n_rules): alone(
            f"{HERE}:number_alone", kind=kind, n_rules=n_rules, quick=settings.quick
        )
        for n_rules in sizes
    }
    at_peers = details[str(1_000)]["gains"]
    note = "; ".join(_number_told(int(size), found) for size, found in details.items())
    note += "; in brackets how many times as fast as each peer on the same rows"
    return Measurement(min(at_peers.values()), note, details)


def _number_told(n_rules: int, found: dict[str, Any]) -> str:
    gains = ", ".join(f"{engine} {gain:.3g}" for engine, gain in found["gains"].items())
    of_peers = f" ({gains})" if gains else ""
    speed = f"{found['rows_per_s']:,.0f} rows/s of {found['n_rows']:,} rows"
    return f"{n_rules:,} rules: {speed}{of_peers}"


def number_alone(kind: str, n_rules: int, *, quick: bool) -> dict[str, Any]:
    """Time rules of one kind by themselves and beside each peer that takes so many.

    Every size has a process of its own: thousands of statements leave garbage in a session.
    """
    settings = Settings(quick=quick)
    rules = KINDS[kind](n_rules)
    ours, most = RuleSet(rules), settings.pick(MOST_ROWS, 50_000)
    n_rows = int(min(most, MAX_PAIRS["eddyline"] / n_rules))
    df = rows_of(n_rows)
    times = interleaved({"eddyline": lambda: _arrays(df, ours)}, settings.pick(2, 1))["eddyline"]
    beside = {
        engine: _beside(engine, rules, ours, int(min(most, MAX_PAIRS[engine] / n_rules)), settings)
        for engine, limit in MAX_RULES.items()
        if n_rules <= limit
    }
    return {
        "rows_per_s": n_rows / times.median,
        "n_rows": n_rows,
        "gains": {engine: found["gain"] for engine, found in beside.items()},
        "beside": beside,
    }


def _beside(
    engine: str, rules: Rules, ours: RuleSet, n_rows: int, settings: Settings
) -> dict[str, Any]:
    """Return times of a peer and of ours on the same rows, both counting matches by rule."""
    theirs, df = _peers(n_rows, rules)[engine], rows_of(n_rows)
    counts: dict[str, dict[str, int]] = {}
    ways: dict[str, Callable[[], dict[str, int]]] = {
        engine: theirs,
        "eddyline": lambda: ours_by_rule(ours, df),
    }

    def counting(name: str) -> Callable[[], None]:
        return lambda: counts.__setitem__(name, ways[name]())

    n_runs = settings.pick(2, 1) if len(rules) < MANY_RULES else 1
    times = interleaved({name: counting(name) for name in ways}, n_runs)
    _check_equal(counts["eddyline"], counts[engine])
    gain = paired_ratio(times[engine], times["eddyline"])
    return {"gain": gain, "n_rows": n_rows, **seconds_of(times)}


BATCH_ROWS = 10_000

N_BASE, N_ADDED = 1_000, 9_000

ABSENT: dict[str, Callable[[], dict[str, str]]] = {
    "other codes": lambda: equality_rules_v1(N_ADDED, 1, first_code=max(CODE_VALUES)),
    "ranges outside": lambda: range_rules_v1(N_ADDED, 1, first_value=DOMAIN),
    "other texts": lambda: mixed_rules_v1(N_ADDED, 1, absent="~"),
}
"""Rules that hold for no row, by why."""


class Worker:
    """The rules of a set as Spark's workers run them, without Spark."""

    def __init__(self, rules: Rules, table: pa.Table) -> None:
        program = compile_rules(bound(rules, table))
        options = SharingOptions()
        self.task = RuleTask(
            program_id=uuid.uuid4().hex,
            load=lambda: program,
            plan=RuleChoice(program, options).sharing,
            is_measured=False,
            options=options,
            run_id="run",
            batch_id=0,
            name="rules",
        )
        columns = [table[text.strip("`")].combine_chunks() for text in program.columns]
        self.batches = [
            tuple(column.slice(start, BATCH_ROWS) for column in columns)
            for start in range(0, table.num_rows, BATCH_ROWS)
        ]

    def run(self) -> SharingProfile:
        """Evaluate all rows; returns what was observed."""
        *_, last = self.task.run(iter(self.batches))
        profile: SharingProfile = TaskReport.from_bytes(last.field("report")[-1].as_py()).profile
        return profile


def bound(rules: Rules, table: pa.Table) -> list[Any]:
    """Return the trees of SQL rules over a table."""
    types = {name: "int" if name[0] in "ac" else "string" for name in table.column_names}
    return [rule_source(name, text).bind(types, ansi=True) for name, text in rules.items()]


def base_rules() -> Rules:
    """Return 1,000 rules of three kinds."""
    third = N_BASE // 3
    return range_rules_v1(third) | equality_rules_v1(third) | mixed_rules_v1(N_BASE - 2 * third)


def flat(settings: Settings, *, counted: bool) -> Measurement:
    """10,000 rules over 1,000, learned before: rules met and constructs looked at, or time."""
    table = rows_v1(settings.pick(200_000, 50_000))
    base = base_rules()
    workers = {"1,000": Worker(base, table)}
    for kind, make in ABSENT.items():
        added = {f"absent_{name}": text for name, text in make().items()}
        workers[kind] = Worker(base | added, table)
    counts = {name: _work(each, table.num_rows) for name, each in workers.items()}
    for kind in ABSENT:
        n_matches = counts[kind]["matches"]
        assert n_matches == counts["1,000"]["matches"], f"rules of {kind} hold for rows: {counts}"
    told = "; ".join(
        f"{name}: {c['met']:.3g} rules met, {c['looked_at']:.3g} constructs looked at"
        for name, c in counts.items()
    )
    if counted:
        ratios = {
            kind: max(counts[kind][part] / counts["1,000"][part] for part in ("met", "looked_at"))
            for kind in ABSENT
        }
        return Measurement(max(ratios.values()), f"a row: {told}", {"counts": counts} | ratios)
    times = interleaved(
        {name: each.run for name, each in workers.items()},
        settings.pick(9, 3),
        clock=time.process_time,
    )
    ratios = {kind: paired_ratio(times[kind], times["1,000"]) for kind in ABSENT}
    note = f"{', '.join(f'{k} {r:.3f}' for k, r in ratios.items())}; {times_told(times)}"
    return Measurement(max(ratios.values()), note, {**seconds_of(times), **ratios})


def _work(worker: Worker, n_rows: int) -> dict[str, float]:
    """Return the work of a row once the plan is learned."""
    for _ in range(2):
        worker.run()
    seen = worker.run()
    return {
        "met": float(seen.candidates.sum()) / n_rows,
        "looked_at": float(seen.construct_rows.sum()) / n_rows,
        "matches": float(seen.matches.sum()),
    }


def memory_alone(n_rules: int, n_rows: int) -> dict[str, Any]:
    """Compile rules and run them on Spark; returns what driver and worker held at most."""
    rules = equality_rules_v1(n_rules)
    df = rows_of(n_rows)
    before = peak_bytes()
    started = time.perf_counter()
    ours = RuleSet(rules)
    found = df.transform(ours.matches("found"))
    loaded_s = time.perf_counter() - started
    n_matches = pairs_in(found)
    first_s = time.perf_counter() - started - loaded_s
    times = interleaved({"run": lambda: _arrays(df, ours)}, 2)["run"]
    return {
        "driver_before_bytes": before,
        "driver_peak_bytes": peak_bytes(),
        "worker_peak_bytes": max(workers_peak_bytes(df.sparkSession), default=0),
        "load_s": loaded_s,
        "first_s": first_s,
        "run_s": times.median,
        "n_matches": n_matches,
    }


def memory(settings: Settings) -> Measurement:
    """The larger of a worker's and the driver's Python process."""
    n_rules, n_rows = settings.pick(100_000, 10_000), settings.pick(200_000, 50_000)
    found = alone(f"{HERE}:memory_alone", n_rules=n_rules, n_rows=n_rows)
    worker, driver = found["worker_peak_bytes"] / 2**30, found["driver_peak_bytes"] / 2**30
    note = (
        f"{n_rules:,} rules of two or three equalities: worker {worker:.2f} GiB, driver "
        f"{driver:.2f} GiB; read and compiled in {found['load_s']:.1f} s, first {n_rows:,} rows in "
        f"{found['first_s']:.1f} s, then in {found['run_s']:.2f} s"
    )
    return Measurement(max(worker, driver), note, found)


RUNS: Runs = {
    "sharing_500_queries_spark_statement": partial(statement, n_rules=500, is_tuned=False),
    "sharing_500_queries_spark_by_operator": partial(statement, n_rules=500, is_tuned=True),
    "sharing_50_queries_spark_statement": partial(statement, n_rules=50, is_tuned=True),
    **{f"sharing_number_{kind}": partial(by_number, kind=kind) for kind in KINDS},
    "sharing_flat_cannot_match": partial(flat, counted=False),
    "sharing_flat_counted": partial(flat, counted=True),
    "sharing_memory_100k": memory,
}
