"""Windows that follow from the condition: by the definition they change no result."""

import pytest
from hypothesis import given

from tests.examples import examples, is_drawn
from tests.oracles.bound_strategies import (
    bounded_cases,
    bounded_partner_cases,
    is_derived,
    undone,
)
from tests.oracles.joins import bag, results, results_by_partner


@given(bounded_cases())
@examples(200)
def test_derived_windows_change_no_result(case):
    wanted = results(undone(case.query), case.tables, case.times)
    assert bag(results(case.query, case.tables, case.times)) == bag(wanted)


@given(bounded_partner_cases())
@examples(200)
def test_derived_windows_change_no_partner(case):
    wanted = results_by_partner(undone(case.query), case.tables, case.times)
    assert bag(results_by_partner(case.query, case.tables, case.times)) == bag(wanted)


@pytest.mark.large
@pytest.mark.parametrize("cases", [bounded_cases(), bounded_partner_cases()])
def test_windows_are_derived_in_cases_with_results(cases):
    def has_both(case):
        by_kind = results if case.query.kind == "inner" else results_by_partner
        return is_derived(case.query) and len(by_kind(case.query, case.tables, case.times)) > 3

    assert is_drawn(cases, has_both)
