"""Models in words: bounds and what of them is used, times of steps, violations, pictures."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from eddyline.data.learned import restored
from eddyline.estimates.filters import Estimate
from eddyline.models.fitting.fit import FitReport
from eddyline.models.planning.choice import JoinView, SideView, StepView
from eddyline.models.planning.watching import Work
from eddyline.models.streams.plan import ModelCounts
from eddyline.models.streams.view import (
    AskedBound,
    Curve,
    ModelView,
    Picture,
    WaitingRows,
)
from eddyline.report.figures import Colours, Figures
from eddyline.report.figures import drawn as traced
from eddyline.report.models import WAITING, drawn, lines, sections
from eddyline.report.sections import Figure, Table, sections_json, sections_of, without_values
from eddyline.report.terminal import explain
from eddyline.runtime.records import BatchRecord, History

ASKED = (AskedBound("x", "1", "0 x"), AskedBound("z", "0.5", "z", is_of_result=True))


def view_of(n):
    """Return models after n batches, in which everything was the same."""
    total = FitReport(100 * n, 10 * n, n_dropped=20 * n, n_broken=n, n_outside=3 * n)
    work = Work({"where x > 3": 3_000_000 * n, "rows and state": 1_000_000 * n}, {"0 x": 0.75},
                {"z": 0.6}, 2 * n, 4 * n)  # fmt: skip
    return ModelView("q", "models of s", ModelCounts(total, 7, work=work), 0, 100, asked=ASKED)


def history_of(n):
    return History(tuple(BatchRecord(at, 100, 7, 0.5, operators=(view_of(at + 1).record,))
                         for at in range(n)))  # fmt: skip


def test_bounds_and_times_are_tables():
    (models, *_) = sections(view_of(4), history_of(4))
    bounds, times = (each for each in models.parts if isinstance(each, Table))
    assert bounds.rows == (("x", "models", "1", 0.75), ("z", "results", "0.5", 0.6))
    assert times.rows == (
        ("where x > 3", 12_000_000, 0.75, 300_000.0),
        ("rows and state", 4_000_000, 0.25, 100_000.0),
    )
    text = explain("q", [models])
    assert "12 rows outside of what was assumed" in text
    assert "8 results with an error above what was asked" in text
    assert "75.0 %" in text
    assert {tile.name: tile.value for tile in models.tiles}["rows outside, results beyond"] == 20
    nothing = replace(view_of(0), counts=ModelCounts())
    assert not [each for each in sections(nothing, History())[0].parts
                if isinstance(each, Table) and each.rows]  # fmt: skip


MINUTE = 60_000_000


def test_rows_that_wait_say_why_and_until_when():
    fitted = WaitingRows("ships", 3, 9_366, 90 * MINUTE, 30 * MINUTE, 1024)
    view = replace(view_of(4), waiting=(fitted,))
    (models, *_) = sections(view, history_of(4))
    tables = [each for each in models.parts if isinstance(each, Table)]
    (table,) = (each for each in tables if each.columns == WAITING)
    assert table.rows == (("ships", 9_369, 3, 9_366, 90 * MINUTE),)
    text = " ".join(explain("q", [models]).split())
    assert "when event time is 30 min (max_gap) past its last row" in text
    assert "A new run first waits for 1,024 rows (prefix_rows)" in text
    assert "1970-01-01 01:30:00" in text
    assert "lateness delays event time" in text
    said = "9,369 rows waiting (9,366 in open runs until 1970-01-01 01:30:00 UTC)"
    assert said in lines(view.record)[0]
    assert view.record.numbers(1).levels["n_in_open_runs"] == 9_366
    declared = WaitingRows("ships", 0, 2, None, 2 * MINUTE, None, is_fitted=False)
    (models, *_) = sections(replace(view, waiting=(declared,)), history_of(4))
    text = " ".join(explain("q", [models]).split())
    assert "at the next row of its entity, or after 2 min (horizon)" in text
    assert "prefix_rows" not in text
    nothing = sections(view_of(4), history_of(4))[0].parts
    assert WAITING not in [each.columns for each in nothing if isinstance(each, Table)]


def test_figures_are_of_each_batch():
    (models, *_) = sections(view_of(4), history_of(4))
    figures = {each.title: each for each in models.parts if isinstance(each, Figure)}
    assert list(figures) == [
        "Rows per segment, by batch", "Rows dropped, by batch", "Violations, by batch",
        "Time of tasks by step, by batch",
    ]  # fmt: skip
    assert {line.name: line.values for line in figures["Violations, by batch"].lines} == {
        "rows outside": (3.0,) * 3, "results beyond": (2.0,) * 3, "models broken": (1.0,) * 3,
    }  # fmt: skip
    assert figures["Rows per segment, by batch"].lines[0].values == (10.0,) * 3
    assert figures["Rows dropped, by batch"].lines[0].values == (0.2,) * 3
    assert figures["Time of tasks by step, by batch"].lines[0].values == (3e6,) * 3
    numbers = history_of(3).batches[-1].operators[0].numbers(100).levels
    assert numbers["n_outside_in_all"] == 9
    assert numbers["task_seconds_in_all"] == 0.012


def test_counts_are_saved_and_read():
    counts = view_of(2).counts + ModelCounts(n_early=5, n_taken_back=2)
    assert restored({"n_results": 3}, ModelCounts, "models").work == Work()
    assert (
        restored(msgspec.json.decode(msgspec.json.encode(counts)), ModelCounts, "models") == counts
    )


PICTURES = (
    Picture(
        "ship 3",
        "x",
        (
            Curve("bound", "bound", (0, 9, 9, 0, None), (2.0, 3.0, 1.0, 0.0, None)),
            Curve("model", "model", (0, 9, None, 9, 12, None), (1.0, 2.0, None, 2.5, 3.0, None)),
            Curve("rows", "rows", (0, 4, 9), (1.00001, None, 2.5), is_dotted=True),
            Curve("answer", "answer", (4, 9, None), (1.5, 2.0, None)),
        ),
    ),
)


def test_pictures_are_figures_with_instants_of_their_own():
    (section,) = drawn(PICTURES)
    _, table, figure = section.parts
    assert table.rows == (("ship 3", 2, 2, 1.0),)
    assert [(line.name, line.mark) for line in figure.lines] == [
        ("model", "line"), ("answer", "line"), ("bound", "area"), ("rows", "points"),
    ]  # fmt: skip
    slots = Colours().slots_of(figure)
    assert slots == [0, 1, 0, -1]
    made = traced(figure, slots)
    traces = {each["name"]: each for each in made["data"]}
    assert traces["model"]["x"] == [0.0, 0.009, None, 0.009, 0.012, None]
    assert traces["rows"]["y"] == [1.00001, None, 2.5]
    assert traces["rows"]["mode"] == "markers"
    assert traces["bound"]["fill"] == "toself"
    assert "connectgaps" not in traces["model"]
    assert made["layout"]["yaxis"]["title"] == {"text": "x"}
    assert made["labels"] == []
    key = Figures().add(figure)[1]
    assert key == [("model", 0, "line"), ("answer", 1, "line"), ("bound", 0, "area"),
                   ("rows", -1, "points")]  # fmt: skip
    assert drawn(()) == []


def test_pictures_are_kept_as_plain_values_and_hidden_as_values():
    made = drawn(PICTURES)
    assert sections_of(sections_json(made)) == made
    (hidden,) = without_values(made, "--show")
    assert not any(isinstance(each, Figure) for each in hidden.parts)


def test_what_steps_give_and_joins_ask_stands_beside_estimates():
    estimate = Estimate(0.5, 0.25, 1.0)
    steps = (
        StepView("where x > 3", estimate, 0.4, 0.8, 0.1),
        StepView("least over entities", None, 0.1, None, None),
    )
    sides = (SideView("a", Estimate.exactly(0.1), 0.12), SideView("b", None, None))
    joins = (JoinView("join a and b", "asks a", Estimate.exactly(40.0), 50.0, sides),)
    (models, *_) = sections(replace(view_of(1), steps=steps, joins=joins), History())
    of_steps, of_joins = [each.rows for each in models.parts if isinstance(each, Table)][1:3]
    assert of_steps == (
        ("where x > 3", 0.5, 0.25, 1.0, 0.4, 0.8, 0.1),
        ("least over entities", None, None, None, 0.1, None, None),
    )
    assert of_joins == (
        ("join a and b", "asks a", 40.0, 50.0, "a", 0.1, 0.12),
        ("join a and b", "asks a", 40.0, 50.0, "b", None, None),
    )
    plan = {"join a and b": ["a", "b"], "join c and d": "by sample", "join e and f": []}
    assert lines(replace(view_of(1).record, plan=plan))[1:] == (
        "join a and b asks a then b",
        "join c and d asks by sample",
        "join e and f asks none",
    )
