"""Pages with pictures of a few entities: of segments of a batch DataFrame, and of a run."""

from __future__ import annotations

import json
import re

import pytest

from eddyline.errors import NotSupportedError, OptionError
from tests.spark.models.test_streams import folder
from tests.spark.models.tracks import declared, ended, fitted, stream_of

__all__ = ["folder"]


@pytest.fixture(scope="module")
def rows(spark, folder):
    return spark.read.parquet(str(folder)).persist()


def figures_of(path):
    """Return what the figures of a page draw, by their titles."""
    text = path.read_text()
    titles = re.findall(r"<h3>(.*?)</h3>", text)
    data = json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])
    return dict(zip(titles, data.values(), strict=True))


def drawn(figure):
    return {each["name"]: each for each in figure["data"]}


@pytest.mark.large
@pytest.mark.parametrize("make", [fitted, declared])
def test_a_page_draws_the_newest_rows_of_the_same_entities(rows, tmp_path, make):
    asked = make(rows).where("x > 0 AND ship <> 99")
    path = asked.report(tmp_path / "new" / "page.html", entities=2, rows=50)
    found = figures_of(path)
    assert len(found) == 2
    for title, figure in found.items():
        ship = int(title.rsplit(" ", 1)[1])
        own = rows.where(f"ship = {ship}").count()
        lines = drawn(figure)
        assert len(lines["rows"]["x"]) == min(own, 50)
        assert "model" in lines
        assert all(each is None or each >= -1e-5 for each in lines.get("answer", {"y": []})["y"])
    again = asked.report(tmp_path / "again.html", entities=2, rows=50)
    assert figures_of(again) == found


@pytest.mark.large
def test_windows_joins_and_kept_segments_are_drawn(rows, tmp_path):
    one = fitted(rows.where("ship IN (1, 2)"))
    slow = one.avg("x", window="20 seconds")
    both = one.join(slow, names=("now", "slow")).select("now_x", lead="now_x - slow_x")
    found = figures_of(both.report(tmp_path / "joined.html", rows=30))
    assert {*found} == {"x of ship 1", "x of ship 2", "lead of ship 1", "lead of ship 2"}
    assert {"answer", "error"} <= {*drawn(found["lead of ship 1"])}
    kept = one.persist()
    alone = figures_of(kept.where("ship = 1").report(tmp_path / "kept.html", rows=30))
    assert {*drawn(alone["x of ship 1"])} == {"model", "bound", "rows"}
    nothing = one.where("ship = 7").report(tmp_path / "none.html")
    assert "0 entities are drawn" in nothing.read_text()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s, p: s.pairs().report(p), NotSupportedError, "of several"),
        (lambda s, p: s.max("x").report(p), NotSupportedError, "of several"),
        (lambda s, p: s.report(p, entities=0), OptionError, "entities"),
        (lambda s, p: s.report(p, rows=1.5), OptionError, "rows"),
    ],
)
def test_what_is_not_drawn_is_refused(rows, tmp_path, call, error, message):
    with pytest.raises(error, match=message):
        call(fitted(rows), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.large
def test_a_run_draws_what_its_buckets_kept(spark, folder, rows, tmp_path):
    live = fitted(stream_of(spark, folder, 2), name="tracks")
    with pytest.raises(NotSupportedError, match="drawn by its run"):
        live.report(tmp_path / "page.html")
    run = ended(live.where("x > 0").changes(), tmp_path)
    found = figures_of(run.report(tmp_path / "run.html"))
    pictures = {title: each for title, each in found.items() if title.startswith("x of ship")}
    codes = rows.where("ship <> 99").selectExpr("ship", "xxhash64(ship) AS code").distinct()
    least = [row.ship for row in codes.orderBy("code").limit(3).collect()]
    assert {f"x of ship {each}" for each in least} <= {*pictures}
    assert len(pictures) <= 4
    text = run.explain()
    for step in ("make segments of x", "where x > 0", "changes only", "rows and state"):
        assert step in text
