"""Profiles add up, whatever plan and task they come from."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest

from eddyline.query.conditions import And, Compare, FunctionTest, Operand, Rule, TextTest
from eddyline.query.predicates import FunctionPredicate
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.plan import MAX_SAMPLED, SharingProfile
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.sql.regexes import ANY, Wild
from eddyline.sql.types import parse_type

N, S = (Operand(f"`{n}`", parse_type(k), (n,)) for n, k in (("n", "int"), ("s", "string")))
EVEN = FunctionTest(FunctionPredicate(lambda n: [v % 2 == 0 for v in n.to_pylist()], ("`n`",)))
PROGRAM = compile_rules(
    [
        Rule("few", Compare(N, "<", 10)),
        Rule("text", And((Compare(N, "<", 50), TextTest(S, (Wild(ANY), "1", Wild(ANY)))))),
        Rule("python", And((Compare(N, "<", 20), EVEN))),
    ]
)
TIMES = ("construct_ns", "asked_ns", "evaluation_ns")


def merge(profiles):
    first, *others = profiles
    return first.merge(*others)


def profile_of(low, high, method="auto", sampled=0):
    columns = {
        "`n`": pa.array(range(low, high), pa.int32()),
        "`s`": pa.array([str(value) for value in range(low, high)]),
    }
    matcher = Matcher(PROGRAM, plan_of(PROGRAM, method=method))
    found = matcher.match(
        [columns[each] for each in PROGRAM.columns],
        n_rows=high - low,
        sample=np.arange(min(sampled, high - low)),
    )
    return found[1]


def shown(profile):
    values = {each.name: getattr(profile, each.name) for each in fields(profile)}
    values["blocks"] = {
        plan: (each.n_rows, each.evaluated.tolist(), each.dropped.tolist(), each.n_pairs)
        for plan, each in profile.blocks.items()
    }
    python = values.pop("python")
    values["answers"], values["calls"] = python.answers, python.costs.sums[1]
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


def counts(profile):
    return {name: value for name, value in shown(profile).items() if name not in TIMES}


def test_what_is_observed():
    found = profile_of(0, 100, "witnesses", sampled=30)
    assert (found.n_rows, found.n_sampled) == (100, 30)
    assert found.matches.tolist() == [10, 14, 10]
    assert found.candidates.tolist()[0] == 10
    assert found.pattern_counts.tolist() == [sum("1" in str(value) for value in range(30))]
    assert found.sampled_regions.shape == (30, 1)
    assert found.asked.tolist() == [20]
    assert found.dropped == 100 - 50
    assert found.evaluation_ns > found.construct_ns.sum() > 0


def test_the_profile_of_no_rows_is_neutral():
    one = profile_of(0, 40, sampled=10)
    empty = SharingProfile.empty(PROGRAM)
    assert shown(merge([empty, one])) == shown(merge([one, empty])) == shown(one)
    assert shown(merge([empty])) == shown(empty)


@pytest.mark.parametrize("methods", [("auto",) * 3, ("blocks", "witnesses", "every_row")])
def test_profiles_merge_in_any_grouping(methods):
    parts = [
        profile_of(10 * at, 10 * at + 40, method, sampled=15) for at, method in enumerate(methods)
    ]
    whole = merge(parts)
    assert shown(whole) == shown(reduce(lambda a, b: merge([a, b]), parts))
    assert shown(whole) == shown(merge([parts[0], merge(parts[1:])]))
    assert whole.n_rows == 120
    assert whole.matches.tolist() == sum(each.matches for each in parts).tolist()
    assert sum(each.n_rows for each in whole.blocks.values()) == sum(
        each.n_rows for part in parts for each in part.blocks.values()
    )


def test_cuts_do_not_change_counts():
    whole = counts(profile_of(0, 100, "witnesses"))
    cut = [
        profile_of(0, 1, "witnesses"),
        profile_of(1, 34, "witnesses"),
        profile_of(34, 100, "witnesses"),
    ]
    assert counts(merge(cut)) == whole


def test_the_newest_sampled_rows_are_kept():
    empty = SharingProfile.empty(PROGRAM)

    def sampled(value, count):
        regions = np.full((count, 1), value, np.int32)
        return replace(empty, n_sampled=count, sampled_regions=regions)

    found = merge([sampled(1, 1_500), sampled(2, 400), sampled(3, 600)])
    assert found.n_sampled == 2_500
    assert len(found.sampled_regions) == MAX_SAMPLED
    assert np.bincount(found.sampled_regions[:, 0]).tolist() == [0, 1_000, 400, 600]
    sums = found.region_sums(0, 5)
    assert len(sums) == 6
    assert sums[-1] == 2_500
    assert sums.tolist() == [0, 0, 1_250, 1_750, 2_500, 2_500]
    assert SharingProfile.empty(PROGRAM).region_sums(0, 5).tolist() == [0] * 6


def test_profiles_travel():
    one = profile_of(0, 100, "blocks", sampled=20)
    assert shown(pickle.loads(pickle.dumps(one))) == shown(one)


def test_merging_changes_no_part():
    parts = [profile_of(0, 50, "blocks"), profile_of(50, 100, "blocks")]
    before = [shown(each) for each in parts]
    merge(parts)
    merge(parts)
    assert [shown(each) for each in parts] == before
