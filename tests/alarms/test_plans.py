"""Whatever the plan, alarms give what each gives alone; a profile says what was done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eddyline.alarms.plan import SHARINGS, TemplatePlan
from eddyline.alarms.profile import AlarmProfile
from eddyline.models.steps import Changes, result_table
from tests.alarms.alone import alone, named, ranges_of
from tests.alarms.test_sweep import CONDITIONS, CONSTANTS
from tests.alarms.test_sweep import named as by_name
from tests.models.pieces import EPOCH, drawn


def rows_of(ranges, segments):
    found, observed = ranges.watched(named(segments))
    rows = result_table(Changes().run(found), None).drop_columns(["__definition"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows), observed


@st.composite
def plans(draw, templates):
    """Draw a plan for each of some templates, or none."""
    return {
        each.text: TemplatePlan(
            draw(st.sampled_from(SHARINGS)),
            tuple(draw(st.permutations(range(len(each.conjuncts))))),
        )
        for each in templates
        if draw(st.integers(0, 4))
    }


@given(
    drawn(names=("x", "y"), degree=3, start=EPOCH),
    st.lists(CONDITIONS, min_size=1, max_size=5).map(by_name),
    st.data(),
)
def test_any_plan_of_any_alarms(segments, texts, data):
    program = ranges_of(segments, texts).program
    plan = data.draw(plans(program.templates))
    for watches in (False, True):
        ranges = ranges_of(segments, texts, plan=plan, watches=watches)
        found, observed = rows_of(ranges, segments)
        assert found == alone(segments, texts)
        assert isinstance(observed, AlarmProfile) == watches
    assert {*observed.templates} == {each.text for each in program.templates}


@given(
    drawn(names=("x", "y"), degree=1, most=8),
    st.lists(st.tuples(CONSTANTS, CONSTANTS, CONSTANTS), min_size=1, max_size=8),
    st.data(),
)
def test_any_plan_of_conjunctions(segments, constants, data):
    texts = by_name([f"x > {a!r} AND y <= {b!r} AND d(x) < {c!r}" for a, b, c in constants])
    (template,) = ranges_of(segments, texts).program.templates
    assert template.text == "x > ? AND y <= ? AND d(x) < ?"
    plan = data.draw(plans([template]))
    found, observed = rows_of(ranges_of(segments, texts, plan=plan, watches=True), segments)
    assert found == alone(segments, texts)
    counts = observed.templates[template.text]
    assert counts.sharing == plan.get(template.text, TemplatePlan()).sharing
    assert counts.n_rows == observed.n_rows == (~segments.is_tombstone).sum()
