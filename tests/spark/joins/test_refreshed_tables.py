"""Tables that are refreshed: each batch joins one version, also when it runs again."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

import eddyline as el
from eddyline.errors import EddylineWarning, NotSupportedError, OptionError, QueryError, SourceError
from eddyline.spark.script import run_script

pytestmark = pytest.mark.spark

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = pa.schema([("k", pa.int64()), ("v", pa.string())])
STREAM = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def write_table(folder, rows, schema=TABLE, **how):
    table = pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows], schema
    )
    write_deltalake(folder / "t", table, mode="overwrite", **how)


def write_rows(folder, stream, batch, rows):
    (folder / stream).mkdir(exist_ok=True)
    columns = [{"k": k, "x": x, "ts": BEGIN + timedelta(seconds=s)} for k, x, s in rows]
    table = pa.Table.from_pylist(columns, STREAM)
    path = folder / stream / f"{batch:03d}.parquet"
    parquet.write_table(table, path)
    os.utime(path, (batch, batch))  # the oldest file is the first batch


def engine_over(spark, folder, refresh="0 seconds", streams=("a", "b")):
    engine = el.Engine(spark)
    for stream in streams:
        (folder / stream).mkdir(exist_ok=True)
        rows = spark.readStream.schema("k long, x long, ts timestamp")
        rows = rows.option("maxFilesPerTrigger", 1).parquet(str(folder / stream))
        engine.stream(stream, rows, time="ts", lateness="1 hour")
    engine.table("t", el.delta(folder / "t"), refresh=refresh)
    return engine


def run_over(engine, text, folder, sink, **options):
    query = engine.query(text, name="q", **options)
    run = query.start(sink, checkpoint=folder / "ckpt", trigger="available_now")
    assert run.await_termination(180)
    return run


def versions_of(run):
    return [
        (entry["batch_id"], entry["before"], entry["after"])
        for entry in run.journal
        if entry["event"] == "version"
    ]


QUERIES = {
    "inner": "SELECT a.x AS x, t.v AS v FROM a JOIN t ON a.k = t.k",
    "where": "SELECT a.x AS x, t.v AS v FROM a JOIN t ON a.k = t.k WHERE t.v <> 'v1'",
    "left": "SELECT a.x AS x, t.v AS v FROM a LEFT JOIN t ON a.k = t.k",
    "on": "SELECT a.x AS x, t.v AS v FROM a LEFT JOIN t ON a.k = t.k AND t.v < 'v' || (a.x % 4)",
    "semi": "SELECT a.x AS x, 1 AS v FROM a LEFT SEMI JOIN t ON a.k = t.k",
    "anti": "SELECT a.x AS x, 1 AS v FROM a LEFT ANTI JOIN t ON a.k = t.k",
    "exists": "SELECT a.x AS x, 1 AS v FROM a WHERE a.k IN (SELECT t.k FROM t WHERE t.v <> 'v0')",
    "two": """SELECT a.x AS x, b.x || t.v AS v FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR], t
              WHERE a.k = b.k AND b.k = t.k""",
}


def expected(kind, arrived, versions):
    """Return the results of each batch: each row of a stream meets the version of its batch."""
    seen_a, seen_b, found = [], [], []
    for (new_a, new_b), rows in zip(arrived, versions, strict=True):
        table = [(k, v) for k, v in rows if k is not None]
        results = []
        if kind == "two":
            pairs = [(a, b) for a in new_a for b in seen_b + new_b]
            pairs += [(a, b) for a in seen_a for b in new_b]
            results = [
                (a[1], None if v is None else f"{b[1]}{v}")
                for a, b in pairs
                for k, v in table
                if a[0] == b[0] == k
            ]
        else:
            results = [result for row in new_a for result in of_row(kind, row, table)]
        seen_a, seen_b = seen_a + new_a, seen_b + new_b
        found.append(sorted(results, key=str))
    return found


def of_row(kind, row, table):
    """Return the results of a row of the stream."""
    mine = [v for k, v in table if k == row[0]]  # of NULL there is none in the table
    if kind in ("where", "exists"):
        mine = [v for v in mine if v is not None and v != ("v1" if kind == "where" else "v0")]
    if kind == "on":
        mine = [v for v in mine if v is not None and v < f"v{row[1] % 4}"]
    if kind in ("semi", "anti", "exists"):
        return [(row[1], 1)] if (mine != []) == (kind != "anti") else []
    if kind in ("left", "on") and not mine:
        return [(row[1], None)]
    return [(row[1], v) for v in mine]


@pytest.mark.parametrize("way", ["any", "buckets"])
@pytest.mark.parametrize("kind", QUERIES)
@pytest.mark.large("a run of four batches over versions of a table")
def test_each_batch_meets_its_version(spark, tmp_path, kind, way):
    draws = random.Random(f"{kind} {way}")
    n_batches = 4
    keys = [None, *range(5)]
    versions = [
        [(draws.choice(keys), draws.choice([None, "v0", "v1", "v2"])) for _ in range(n)]
        for n in (draws.choice([0, 1, 4, 9]) for _ in range(n_batches))
    ]
    streams = ("a", "b") if kind == "two" else ("a",)
    arrived = []
    for batch in range(n_batches):
        new = {
            name: [
                (draws.choice(keys), 100 * batch + 10 * number, batch)
                for number in range(draws.choice([1, 2, 5]))
            ]
            for name in streams
        }
        for name, rows in new.items():
            write_rows(tmp_path, name, batch, rows)
        arrived.append(tuple(new.get(name, []) for name in ("a", "b")))
    write_table(tmp_path, versions[0])
    got = []

    def sink(df, batch_id):
        got.append(sorted(((row.x, row.v) for row in df.collect()), key=str))
        if batch_id + 1 < n_batches:
            write_table(tmp_path, versions[batch_id + 1])

    engine = engine_over(spark, tmp_path, streams=streams)
    # Tables that stay small are sent to the rows, unless rows meet in buckets by a pin.
    options = {} if way == "any" else {"adaptive": False}
    run = run_over(engine, QUERIES[kind], tmp_path, sink, **options)
    assert got == expected(kind, arrived, versions)
    told = versions_of(run)
    assert told[0] == (0, None, "t 0")
    assert [after for _, _, after in told] == [f"t {n}" for n in range(n_batches)]
    shown = run.explain()
    assert f"t has version {n_batches - 1} of its table" in shown
    assert "refreshed" in shown


@pytest.mark.large("starts a query three times")
def test_a_batch_that_runs_again_meets_the_version_of_its_first_attempt(spark, tmp_path):
    write_table(tmp_path, [(1, "old")])
    write_rows(tmp_path, "a", 0, [(1, 10, 0)])
    got = []

    def fails(df, _):
        got.append([row.v for row in df.collect()])
        write_table(tmp_path, [(1, "new")])
        msg = "the sink is away"
        raise ConnectionError(msg)

    for _ in range(2):
        engine = engine_over(spark, tmp_path, streams=("a",))
        with pytest.raises(Exception, match="the sink is away"):
            run_over(engine, QUERIES["inner"], tmp_path, fails)
    write_rows(tmp_path, "a", 1, [(1, 11, 1)])
    engine = engine_over(spark, tmp_path, streams=("a",))
    sink = lambda df, _: got.append([row.v for row in df.collect()])  # noqa: E731
    run = run_over(engine, QUERIES["inner"], tmp_path, sink)
    assert got == [["old"], ["old"], ["old"], ["new"]]
    assert versions_of(run)[-1] == (1, "t 0", "t 2")


def changing(source, versions):
    """A source whose table gets the next version whenever its newest one is asked for."""
    newest, rest = source.newest, iter(versions)

    def changed():
        version = newest()
        next(rest, lambda: None)()
        return version

    source.newest = changed
    return source


@pytest.mark.filterwarnings("ignore::eddyline.errors.NullWarning")
@pytest.mark.large("runs two queries")
@pytest.mark.parametrize("form", ["not in", "twice"])
def test_a_batch_meets_one_version_however_often_a_query_names_the_table(spark, tmp_path, form):
    """Of neither version is a row a result: of the first k is there, of the second NULL is."""
    write_table(tmp_path, [(1, "p")])
    write_rows(tmp_path, "a", 0, [(1, 0, 0)])
    # The engine asks for the version when it is told of the table, and each batch does.
    later = [
        lambda: None,
        lambda: write_table(tmp_path, [(None, "p")]),
        lambda: write_table(tmp_path, [(2, "p")]),
    ]
    engine = engine_over(spark, tmp_path, streams=("a",))
    source = changing(el.delta(tmp_path / "t"), later)
    engine.table("t", source, refresh="0 seconds", replace=True)
    got = []
    if form == "not in":
        text = "SELECT a.x FROM a WHERE a.k NOT IN (SELECT t.k FROM t WHERE t.v = 'p')"
        run = run_over(engine, text, tmp_path, lambda df, _: got.append(df.collect()))
        assert got == [[]]
    else:
        text = """SELECT one.v AS v, two.v AS w FROM a, t AS one, t AS two
                  WHERE a.k = one.k AND a.k = two.k"""
        run = run_over(engine, text, tmp_path, lambda df, _: got.append(df.collect()))
        assert [[tuple(row) for row in rows] for rows in got] == [[("p", "p")]]
    assert {after.rpartition(" ")[2] for _, _, after in versions_of(run)} == {"0"}


def fail(df, _):
    df.collect()
    msg = "the sink is away"
    raise ConnectionError(msg)


@pytest.mark.large("starts a query four times")
def test_a_batch_that_runs_again_keeps_its_versions_whatever_is_refreshed(spark, tmp_path):
    write_table(tmp_path, [(1, "old")])
    write_deltalake(tmp_path / "u", pa.table({"k": [1], "w": ["u"]}))
    write_rows(tmp_path, "a", 0, [(1, 10, 0)])
    text = "SELECT t.v AS v, u.w AS w FROM a, t, u WHERE a.k = t.k AND a.k = u.k"

    def engine(*, t, u):
        made = engine_over(spark, tmp_path, t, streams=("a",))
        made.table("u", el.delta(tmp_path / "u"), refresh=u)
        return made

    with pytest.raises(Exception, match="the sink is away"):
        run_over(engine(t="0 seconds", u=None), text, tmp_path, fail)
    write_table(tmp_path, [(1, "new")])
    with pytest.raises(Exception, match=r"batch 0 began with version 0 of table 't'.*refresh=…"):
        run_over(engine(t=None, u=None), text, tmp_path, fail)
    got = []
    sink = lambda df, _: got.extend(tuple(row) for row in df.collect())  # noqa: E731
    run_over(engine(t="0 seconds", u="0 seconds"), text, tmp_path, sink)
    assert got == [("old", "u")]


@pytest.mark.large("starts a query twice")
def test_a_batch_that_runs_again_refuses_another_table_of_the_same_version(spark, tmp_path):
    write_table(tmp_path, [(1, "old")])
    write_rows(tmp_path, "a", 0, [(1, 10, 0)])
    engine = engine_over(spark, tmp_path, streams=("a",))
    with pytest.raises(Exception, match="the sink is away"):
        run_over(engine, QUERIES["inner"], tmp_path, fail)
    shutil.rmtree(tmp_path / "t")
    write_table(tmp_path, [(1, "other")])
    engine = engine_over(spark, tmp_path, streams=("a",))
    with pytest.raises(Exception, match="is another table than the one that was read before"):
        run_over(engine, QUERIES["inner"], tmp_path, fail)
    # Without the checkpoint it is another run, which knows nothing of the first one.
    shutil.rmtree(tmp_path / "ckpt")
    got = []
    engine = engine_over(spark, tmp_path, streams=("a",))
    run_over(engine, QUERIES["inner"], tmp_path, lambda df, _: got.append(df.first().v))
    assert got == ["other"]


@pytest.mark.large("a run of two batches")
def test_a_table_that_is_made_again_is_read_again(spark, tmp_path):
    write_table(tmp_path, [(1, "old")])
    for batch in range(2):
        write_rows(tmp_path, "a", batch, [(1, batch, batch)])
    got = []

    def sink(df, _):
        got.append(df.first().v)
        shutil.rmtree(tmp_path / "t")
        write_table(tmp_path, [(1, "new")])

    run_over(engine_over(spark, tmp_path, streams=("a",)), QUERIES["inner"], tmp_path, sink)
    assert got == ["old", "new"]


@pytest.mark.large("a run of two batches, twice")
@pytest.mark.parametrize("column", ["k", "v"])
def test_a_version_with_another_type_of_a_column_is_an_error(spark, tmp_path, column):
    write_table(tmp_path, [(1, "v")])
    for batch in range(2):
        write_rows(tmp_path, "a", batch, [(1, batch, batch)])
    kinds = {"k": pa.float64(), "v": pa.int64()}
    fields = [(f.name, kinds[f.name] if f.name == column else f.type) for f in TABLE]
    row = {"k": (1.5, "w"), "v": (1, 5)}[column]

    def sink(*_):
        write_table(tmp_path, [row], pa.schema(fields), schema_mode="overwrite")

    engine = engine_over(spark, tmp_path, streams=("a",))
    with pytest.raises(Exception, match=rf"table 't' has column '{column}' of type .* began with"):
        run_over(engine, QUERIES["inner"], tmp_path, sink)


@pytest.mark.large("starts a query three times")
def test_a_table_may_be_refreshed_from_a_later_start_on_or_no_more(spark, tmp_path):
    write_table(tmp_path, [(1, "first"), (2, "second")])
    got = []
    for batch, refresh in enumerate((None, "0 seconds", None)):
        write_rows(tmp_path, "a", batch, [(1, batch, batch), (2, batch, batch)])
        engine = engine_over(spark, tmp_path, refresh, streams=("a",))
        sink = lambda df, _: got.append(sorted(row.v for row in df.collect()))  # noqa: E731
        run_over(engine, QUERIES["inner"], tmp_path, sink)
        write_table(tmp_path, [(1, f"later {batch}")])
    assert got == [["first", "second"], ["later 0"], ["later 0"]]


@pytest.mark.large("a run of three batches")
def test_a_table_that_does_not_answer_stays_as_it_is_and_is_told(spark, tmp_path):
    write_table(tmp_path, [(1, "v")])
    for batch in range(3):
        write_rows(tmp_path, "a", batch, [(1, batch, batch)])
    got = []

    def sink(df, batch_id):
        got.append([row.v for row in df.collect()])
        if batch_id == 0:
            (tmp_path / "t" / "_delta_log").rename(tmp_path / "away")
        if batch_id == 1:
            (tmp_path / "away").rename(tmp_path / "t" / "_delta_log")
            write_table(tmp_path, [(1, "w")])

    engine = engine_over(spark, tmp_path, streams=("a",))
    with pytest.warns(EddylineWarning, match="'t' stays at version 0, because its newest version"):
        run = run_over(engine, QUERIES["inner"], tmp_path, sink)
    assert got == [["v"], ["v"], ["w"]]
    assert versions_of(run) == [(0, None, "t 0"), (1, None, None), (2, "t 0", "t 1")]


@pytest.mark.large("a run of two batches")
def test_a_version_without_a_column_that_is_read_is_an_error(spark, tmp_path):
    write_table(tmp_path, [(1, "v")])
    for batch in range(2):
        write_rows(tmp_path, "a", batch, [(1, batch, batch)])

    def sink(_, batch_id):
        if batch_id == 0:
            other = pa.schema([("k", pa.int64()), ("w", pa.string())])
            write_table(tmp_path, [(1, "w")], other, schema_mode="overwrite")

    engine = engine_over(spark, tmp_path, streams=("a",))
    with pytest.raises(Exception, match="version 1 of table 't' lacks what query 'q' reads"):
        run_over(engine, QUERIES["inner"], tmp_path, sink)
    write_table(tmp_path, [(1, "again")], schema_mode="overwrite")
    got = []
    engine = engine_over(spark, tmp_path, streams=("a",))
    run_over(engine, QUERIES["inner"], tmp_path, lambda df, _: got.append(df.first().v))
    assert got == ["again"]


@pytest.mark.large("runs a query of two joins twice")
def test_a_version_that_a_later_join_cannot_read_does_not_bind_the_batch(spark, tmp_path):
    text = """SELECT a.x FROM a WHERE EXISTS (SELECT 1 FROM t WHERE t.k = a.k)
              AND EXISTS (SELECT 1 FROM t WHERE t.k = a.k AND t.v = 'right')"""
    write_table(tmp_path, [(1, "right")])
    write_rows(tmp_path, "a", 0, [(1, 10, 0)])
    write_rows(tmp_path, "a", 1, [(1, 11, 0)])
    got = []

    def sink(df, batch_id):
        got.append([row.x for row in df.collect()])
        if batch_id == 0:
            other = pa.schema([("k", pa.int64()), ("w", pa.string())])
            write_table(tmp_path, [(1, "w")], other, schema_mode="overwrite")

    with pytest.raises(Exception, match="version 1 of table 't' lacks what query 'q' reads"):
        run_over(engine_over(spark, tmp_path, streams=("a",)), text, tmp_path, sink)
    write_table(tmp_path, [(1, "right")], schema_mode="overwrite")
    run_over(engine_over(spark, tmp_path, streams=("a",)), text, tmp_path, sink)
    assert got == [[10], [11]]


@pytest.mark.large("starts a query")
def test_versions_are_looked_at_when_the_interval_is_over(spark, tmp_path):
    write_table(tmp_path, [(1, "v")])
    for batch in range(3):
        write_rows(tmp_path, "a", batch, [(1, batch, batch)])
    got = []

    def sink(df, batch_id):
        got.append([row.v for row in df.collect()])
        write_table(tmp_path, [(1, f"v{batch_id}")])

    engine = engine_over(spark, tmp_path, "1 hour", streams=("a",))
    run = run_over(engine, QUERIES["inner"], tmp_path, sink)
    assert got == [["v"]] * 3
    assert versions_of(run) == [(0, None, "t 0")]
    assert DeltaTable(tmp_path / "t").version() == 3


def test_what_cannot_be_refreshed_is_refused(spark, tmp_path):
    write_table(tmp_path, [(1, "v")])
    engine = engine_over(spark, tmp_path)
    with pytest.raises(QueryError, match=r"needs a source with versions.*got DataFrame"):
        engine.table("df", spark.range(3), refresh="1 minute")
    with pytest.raises(OptionError, match=r"refresh of table 'u' is an interval.*got 'soon'"):
        engine.table("u", el.delta(tmp_path / "t"), refresh="soon")
    with pytest.raises(OptionError, match="refresh"):
        engine.table("u", el.delta(tmp_path / "t"), refresh="-1 minute")
    taken_back = "SELECT DSTREAM(a.x, t.v) FROM a [RANGE 1 HOUR], t WHERE a.k = t.k"
    with pytest.raises(QueryError, match="cannot refresh table 't': DSTREAM takes back results"):
        engine.query(taken_back, name="d").start(lambda *_: None)
    model = """SELECT m.x FROM a MODEL x WITHIN 1 BY k AT ts MAX GAP 1 HOUR AS m JOIN t
               ON m.k = t.k WHERE m.x > 5"""
    with pytest.raises((QueryError, NotSupportedError), match="'t' is refreshed"):
        engine.query(model, name="m").start(lambda *_: None)


def test_a_table_that_was_never_read_has_to_answer(spark, tmp_path):
    write_table(tmp_path, [(1, "v")])
    write_rows(tmp_path, "a", 0, [(1, 1, 1)])
    engine = engine_over(spark, tmp_path, streams=("a",))
    (tmp_path / "t" / "_delta_log").rename(tmp_path / "away")
    with pytest.raises((SourceError, Exception), match="there is no Delta table"):
        run_over(engine, QUERIES["inner"], tmp_path, lambda *_: None)


@pytest.mark.large("runs a script")
def test_a_script_names_the_refresh_of_a_table(spark, tmp_path):
    write_table(tmp_path, [(1, "v")])
    write_rows(tmp_path, "a", 0, [(1, 1, 1)])
    script = tmp_path / "query.sql"
    script.write_text(f"""
        CREATE STREAM a WITH (format = 'parquet', path = '{tmp_path}/a', time = 'ts');
        CREATE TABLE t WITH (format = 'eddyline_delta', path = '{tmp_path}/t',
                             refresh = '5 minutes');
        CREATE QUERY q WITH (sink = 'memory') AS SELECT a.x, t.v FROM a JOIN t ON a.k = t.k;
    """)
    (run,) = run_script(script, spark=spark, trigger="available_now")
    assert run.await_termination(180)
    assert versions_of(run) == [(0, None, "t 0")]
    assert "looks for a newer one where the last look was 5 min ago" in " ".join(
        run.explain().split()
    )


def arrivals(draws, n_batches):
    """Return what streams a and b bring in each batch, and the versions of the table."""
    keys = [None, *range(4)]
    arrived = [
        tuple(
            [(draws.choice(keys), 100 * batch + number, 60 * batch) for number in range(6)]
            for _ in "ab"
        )
        for batch in range(n_batches)
    ]
    versions = [[(key, draws.choice("pqr")) for key in keys[1:]] for _ in arrived]
    return arrived, versions


@pytest.mark.large("two queries that share a join, over three batches")
def test_queries_that_share_a_join_meet_one_version(spark, tmp_path):
    arrived, versions = arrivals(random.Random(4), 3)
    for batch, rows in enumerate(arrived):
        for name, own in zip("ab", rows, strict=True):
            write_rows(tmp_path, name, batch, own)
    write_table(tmp_path, versions[0])
    long = QUERIES["two"].replace("AS x", "AS long")
    short = QUERIES["two"].replace("1 HOUR", "30 SECONDS").replace("AS x", "AS short")
    got = {"long": [], "short": []}

    def sink(df, batch_id):
        name = df.columns[0]
        got[name].append(sorted(((row[0], row[1]) for row in df.collect()), key=str))
        if all(len(batches) == batch_id + 1 for batches in got.values()) and batch_id < 2:
            write_table(tmp_path, versions[batch_id + 1])

    engine = engine_over(spark, tmp_path)
    engine.query(long, name="long")
    engine.query(short, name="short")
    runs = engine.start_all(sink, checkpoint=tmp_path / "ckpt", trigger="available_now")
    for run in runs:
        assert run.await_termination(180)
    assert "share the exchange" in runs[0].explain()
    assert got["long"] == expected("two", arrived, versions)
    # Rows of earlier batches are more than thirty seconds older.
    assert got["short"] == [
        expected("two", [rows], [version])[0]
        for rows, version in zip(arrived, versions, strict=True)
    ]
    assert [after for _, _, after in versions_of(runs[0])] == ["t 0", "t 1", "t 2"]


@pytest.mark.large("three runs of two batches each")
def test_a_copied_checkpoint_goes_on_with_the_versions_of_its_own(spark, tmp_path):
    arrived, versions = arrivals(random.Random(5), 4)
    got = []

    def run(ckpt, batches):
        for batch in batches:
            for name, own in zip("ab", arrived[batch], strict=True):
                write_rows(tmp_path, name, batch, own)

        def sink(df, batch_id):
            got.append(sorted(((row.x, row.v) for row in df.collect()), key=str))
            if batch_id + 1 in batches:
                write_table(tmp_path, versions[batch_id + 1])

        query = engine_over(spark, tmp_path).query(QUERIES["two"], name="q")
        started = query.start(sink, checkpoint=tmp_path / ckpt, trigger="available_now")
        assert started.await_termination(180)

    answer = expected("two", arrived, versions)
    write_table(tmp_path, versions[0])
    run("ckpt", range(2))
    shutil.copytree(tmp_path / "ckpt", tmp_path / "copy")
    for ckpt in ("ckpt", "copy"):
        write_table(tmp_path, versions[2])
        run(ckpt, range(2, 4))
    assert got == [*answer, *answer[2:]]


@pytest.mark.large("a run of six batches")
@pytest.mark.parametrize("constraints", [True, "discard"])
def test_rows_that_are_done_are_done_for_every_version(spark, tmp_path, constraints):
    arrived, versions = arrivals(random.Random(6), 6)
    for batch, rows in enumerate(arrived):
        for name, own in zip("ab", rows, strict=True):
            write_rows(tmp_path, name, batch, own)
    write_table(tmp_path, versions[0])
    got = []

    def sink(df, batch_id):
        got.append(sorted(((row.x, row.v) for row in df.collect()), key=str))
        if batch_id < 5:
            write_table(tmp_path, versions[batch_id + 1])

    run_over(engine_over(spark, tmp_path), QUERIES["two"], tmp_path, sink, constraints=constraints)
    whole = expected("two", arrived, versions)
    if constraints is True:
        assert got == whole
    else:
        for some, every in zip(got, whole, strict=True):
            assert not Counter(some) - Counter(every)
