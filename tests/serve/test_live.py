"""The page of queries that run in this process."""

from __future__ import annotations

import http.client
import threading

import pytest

import eddyline as el
from eddyline.serve.guard import Guard
from eddyline.serve.source import key_of
from eddyline.spark.run.live import runs_of
from tests.serve.fakes import TOKEN

pytestmark = pytest.mark.spark


@pytest.fixture
def engine(spark, tmp_path):
    """Return an engine with a stream of four files that has been served before its queries run."""
    path = str(tmp_path / "in")
    frame = spark.range(4_000).selectExpr("id", "id % 7 AS v", "concat('secret-', id) AS name")
    frame.repartition(4).write.parquet(path)
    made = el.Engine(spark)
    source = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(path)
    made.stream("s", source)

    @el.predicate("name", arrays="pandas")
    def breaks(name):
        if name.str.endswith("77").any():
            msg = f"cannot take {name.iloc[0]}"
            raise ValueError(msg)
        return name.str.len() > 0

    made.function("breaks", breaks)
    return made


def get(server, path):
    cookie = Guard(TOKEN, "127.0.0.1", server.port).cookie.partition(";")[0]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", path, headers={"cookie": cookie})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def page_of(server, engine, name):
    runs = runs_of(lambda: engine.groups).runs()
    return get(server, f"/run/{key_of(next(each for each in runs if each.name == name))}")


def test_a_query_that_ran_one_that_failed_and_two_that_ran_together(engine, tmp_path):
    threads = set(threading.enumerate())
    with engine.serve(token=TOKEN) as server:
        well = engine.query("SELECT id FROM s WHERE v > 1 AND id % 2 = 0 AND v < 6", name="well")
        run = well.start("memory", checkpoint=tmp_path / "ck", trigger="available_now")
        run.await_termination()
        failing = engine.query("SELECT id FROM s WHERE breaks(name)", name="failing")
        failed = failing.start("memory", trigger="available_now")
        with pytest.raises(el.errors.PredicateError):
            failed.await_termination()
        engine.drop("well")
        engine.drop("failing")
        for n in (1, 2):
            engine.query(f"SELECT id FROM s WHERE v = {n}", name=f"together {n}")
        for each in engine.start_all("memory", trigger="available_now"):
            each.await_termination()

        status, listed = get(server, "/")
        assert status == 200
        assert listed.count("data-name=") == 4
        assert "1 failed" in listed
        status, text = page_of(server, engine, "well")
        assert status == 200
        for part in ("filter s: ", "native", "operators and sink", "4,000", "ended"):
            assert part in text
        _, text = page_of(server, engine, "failing")
        assert "PredicateError of predicate breaks" in text
        assert "secret-" not in text
        assert 'eddyline_rows_in_total{query="well"} 4000.0' in get(server, "/metrics")[1]
    left = {each for each in threading.enumerate() if "eddyline page" in each.name}
    assert left <= threads
