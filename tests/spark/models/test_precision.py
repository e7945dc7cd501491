"""Bounds of results: how near models are fitted for them, and that results are within them."""

from __future__ import annotations

import numpy as np
import pytest

import eddyline as el
from eddyline.errors import OptionError, QueryError
from tests.spark.models.walks import Curves, walks


@pytest.fixture(scope="module")
def rows():
    return walks(4, 200)


@pytest.fixture(scope="module")
def df(spark, rows):
    return spark.createDataFrame(
        rows, "fleet string, ship int, ts timestamp_ntz, x double, y double"
    ).persist()


def fitted(df, **more):
    given = {"attributes": ["x", "y"]} | more
    return el.models.fit(
        df, key="ship", time="ts", max_gap="2 minutes", degree=1, rounding=0, **given
    )


def macd(segments):
    fast, slow = (segments.avg("y", window=f"{n} seconds") for n in (10, 60))
    return fast.join(slow).select(lead="left_y - right_y")


@pytest.mark.large
def test_t21_a_bound_of_macd_is_that_of_its_kernel(df):
    asked = macd(fitted(df)).within({"lead": 0.5})
    assert repr(asked).startswith("<segments of lead by ship: fit y within 0.3; method auto; ")
    assert repr(asked).endswith("select left_y - right_y AS lead; lead within 0.5>")
    found = asked.sample("7 seconds").toPandas()
    assert len(found) > 20
    assert (found.err_lead <= 0.5).all()
    assert (found.err_lead > 0.4).any()
    wanted = macd(fitted(df, within={"y": 0.3}, attributes=[])).sample("7 seconds").toPandas()
    order = ["ship", "time"]
    np.testing.assert_allclose(
        found.sort_values(order)["lead"], wanted.sort_values(order)["lead"], atol=1e-9
    )
    assert (wanted.err_lead > 0.5).any(), "errors of both sides without what cancels"


@pytest.mark.large
@pytest.mark.parametrize(
    ("text", "bound", "split"),
    [
        ("x - 2 * y", 0.5, "equal"),
        ("x * y", 8.0, "gradient"),
        ("2 * x + y", "1 %", "gradient"),
        ("y * y", "2 %", "equal"),
    ],
)
def test_rows_are_as_near_to_results_as_is_asked(df, rows, text, bound, split):
    alone = rows.groupby(["ship", "ts"]).filter(lambda each: len(each) == 1)
    known = alone.dropna(subset=["x", "y"])
    asked = fitted(df).select(z=text).within({"z": bound}, split=split)
    table = asked.to_df().toPandas()
    curves = Curves(table)
    n = 0
    for ship, own in known.groupby("ship"):
        value = own.eval(text.replace("2 *", "2.0 *")).to_numpy()
        off = np.abs(curves(ship, own.ts, "z") - value)
        most = 0.01 * float(bound[0]) * np.abs(value) if isinstance(bound, str) else bound
        assert (off <= most * (1 + 1e-9)).all()
        assert (off <= curves(ship, own.ts, "z", "err") * (1 + 1e-9) + 1e-12).all()
        n += len(off)
    assert n > 150
    assert len(table) < 700


@pytest.mark.large
def test_what_is_split_by_gradient_leaves_more_to_what_moves(df):
    moving = fitted(df.withColumn("x", df.x * 50)).select(z="x - y")
    n = {}
    for split in ("equal", "gradient"):
        table = moving.within({"z": 400.0}, split=split).to_df()
        n[split], most = table.selectExpr("count(*)", "max(err_z)").first()
        assert 100 < most <= 400.0
    assert n["gradient"] < n["equal"]


@pytest.mark.large
def test_pairs_and_greatest_of_entities_take_bounds_back_too(df):
    segments = fitted(df)
    apart = segments.select("y").pairs().select(z="left_y - right_y").within({"z": 0.5})
    assert "fit y within 0.25" in repr(apart)
    assert apart.to_df().agg({"err_z": "max"}).first()[0] <= 0.5
    far = segments.select("y").pairs(whole=True)
    far = far.avg_distance("y", window="40 seconds", slide="20 seconds", within=0.5)
    assert 0.3 < far.agg({"err_distance": "max"}).first()[0] <= 0.5
    highest = segments.max("y", by=[]).within({"y": 0.5})
    assert "fit y within 0.5" in repr(highest)
    assert 0 < highest.to_df().agg({"err_y": "max"}).first()[0] <= 0.5


@pytest.mark.large
def test_of_several_bounds_the_least_counts(df):
    segments = fitted(df, within={"y": 0.2}, attributes=["x"])
    both = segments.within({"x": 0.1, "y": 1.0}).join(segments.within({"x": 0.7}))
    assert "fit y within 0.2, x within 0.1" in repr(both)
    assert both.to_df().agg({"err_right_x": "max"}).first()[0] <= 0.1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: s.to_df(), OptionError, "nothing says how near models of 'x' have to be"),
        (lambda s: s.within({"x": 1}).to_df(), OptionError, "nothing says .* 'y' have to be"),
        (lambda s: s.select(v="d(x)").within({"v": 1}), OptionError, r"'v' has d\(\)"),
        (lambda s: s.select(z="x - y / 5").within({"z": "1 %"}).to_df(), OptionError, "may be 0"),
        (lambda s: s.within({"x": "near"}), OptionError, "finite number of 0 or more"),
        (lambda s: s.within({}), OptionError, "a bound for each attribute"),
        (lambda s: s.within({"z": 1}), QueryError, "unknown modelled attribute 'z'"),
        (lambda s: s.within({"x": 1}, split="half"), OptionError, "unknown split 'half'"),
        (
            lambda s: s.within({"x": 1, "y": 1}).persist().within({"x": 1}),
            OptionError,
            "keep the bounds of their fit",
        ),
        (
            lambda s: s.where("x > 3").select("y").within({"y": 1}),
            OptionError,
            "what is only compared has no bound by itself",
        ),
    ],
)
def test_bounds_that_cannot_be_met_are_refused(df, call, error, message):
    with pytest.raises(error, match=message):
        call(fitted(df))


def test_an_attribute_that_nothing_reads_is_not_modelled(df):
    asked = fitted(df).select("y").within({"y": 0.5})
    assert "fit y within 0.5;" in repr(asked)
    assert asked.to_df().columns[-2:] == ["coef_y", "err_y"]
