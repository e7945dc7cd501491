"""The log of plans of a run: it outlives its process, is told, and changes no answer."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import OptionError
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = [pytest.mark.spark, pytest.mark.large]

N_ROWS = 4_000
LEARNS = {"sample_prob": 0.02, "max_overhead": 1.0, "routing": False}


def rows_of(number):
    """Return the rows of a batch: in four of eight few pass by a, in the others few pass by b."""
    rng = np.random.default_rng(number)
    few, many = rng.integers(0, 1_000, N_ROWS), rng.integers(0, 55, N_ROWS)
    a, b = (few, many) if number // 4 % 2 == 0 else (many, few)
    ids = np.arange(number * N_ROWS, (number + 1) * N_ROWS)
    return pa.table({"id": ids, "a": a, "b": b})


@pytest.fixture
def start(spark, tmp_path):
    """Start the query over the files that are there, with a checkpoint."""
    engine = el.Engine(spark)

    def start(**options):
        stream = stream_of(spark, tmp_path, "s", schema="id BIGINT, a BIGINT, b BIGINT")
        engine.stream("s", stream, replace=True)
        text = "SELECT id FROM s WHERE a < 50 AND b < 50"
        query = engine.query(text, name="q", replace=True, **LEARNS, **options)
        where = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
        return query.start("parquet", trigger="available_now", **where)

    return start


def test_the_log_goes_on_after_a_restart_and_changes_no_answer(spark, tmp_path, start):
    sizes = []
    for first, last in ((0, 8), (8, 16)):
        for number in range(first, last):
            write_batch(tmp_path, "s", number, rows_of(number))
        run = start()
        assert run.await_termination(300)
        (view,) = run.chain.log.views(run.chain.choices)
        sizes.append(view.n_rows + view.n_left_out)
        state = json.loads((tmp_path / "ckpt" / "eddyline" / "state.json").read_text())
        (saved,) = state["state"]["plan log"].values()
        assert len(saved["situations"]) == view.n_situations > 0
        assert "what adapting brought" in run.explain()
        run.report(tmp_path / "report.html")
        assert "What adapting brought" in (tmp_path / "report.html").read_text("utf-8")
    assert sizes == [8 * N_ROWS, 16 * N_ROWS]
    table = pa.concat_tables(map(rows_of, range(16)))
    passed = pc.and_(pc.less(table["a"], 50), pc.less(table["b"], 50))
    found = spark.read.parquet(str(tmp_path / "out")).toArrow()["id"].to_pylist()
    assert sorted(found) == table.filter(passed)["id"].to_pylist()


def test_recall_is_an_option_of_every_query(spark, tmp_path, start):
    write_batch(tmp_path, "s", 0, rows_of(0))
    run = start(recall=False)
    assert run.await_termination(300)
    assert not run.chain.log.recalls
    assert run.job.settings["recall"] == "False"
    with pytest.raises(OptionError, match="'recall' must be True or False"):
        start(recall="no")
