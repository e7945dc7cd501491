"""What one batch comes to; that no order changes an answer is in ``tests/properties``."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddyline.data.outcomes import unpack
from eddyline.errors import PredicateError
from eddyline.filters.executor import ArrowExecutor, Sample
from eddyline.query.predicates import predicate

NOTHING = np.zeros(0, dtype=np.int64)


def below(bound, name=None, **given):
    return predicate(lambda a: pc.less(a, bound), reads=["a"], name=name or f"b{bound}", **given)


def run(predicates, values, *, order=None, rows=NOTHING, prob=1.0, extra=None, **options):
    """Run one batch of the column ``a``."""
    n = len(predicates)
    executor = ArrowExecutor(predicates, [(0,)] * n, **options)
    full = np.triu(np.ones((n, n), dtype=bool), 1)
    sample = Sample(np.asarray(rows), prob, full if extra is None else extra, extra is None)
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return executor.run([array], order or tuple(range(n)), sample)


def bits(outcome):
    return unpack(outcome.profile.codes, outcome.profile.n_filters).tolist()


class TestCounts:
    def test_of_the_main_pass(self):
        outcome = run([below(8), below(3)], range(10))
        profile = outcome.profile
        assert outcome.keep.tolist() == [True] * 3 + [False] * 7
        assert profile.rows_in.tolist() == [10, 8]
        assert profile.rows_out.tolist() == [8, 3]
        assert (profile.n_rows, profile.n_kept) == (10, 3)
        assert (profile.n_evaluations, profile.n_extra) == (18, 0)
        assert (profile.n_tuples, profile.passed) == (0, 0.0)

    def test_are_kept_by_filter_whatever_the_order(self):
        profile = run([below(8), below(3)], range(10), order=(1, 0)).profile
        assert profile.rows_in.tolist() == [3, 10]
        assert profile.rows_out.tolist() == [3, 3]

    def test_of_profiling(self):
        outcome = run([below(8), below(3), below(9)], range(10), rows=[0, 5, 8, 9], prob=0.5)
        profile = outcome.profile
        assert bits(outcome) == [[False, True, False], [True, True, False], [True, True, True]]
        assert profile.weights.tolist() == [2, 2, 2]
        assert profile.passed == 2
        assert profile.rows_in.tolist() == [10, 8, 3]
        assert profile.n_extra == 2 + 3
        assert profile.n_evaluations == 21 + 5
        assert profile.basis is None

    def test_of_partial_profiling(self):
        following = np.eye(3, k=1, dtype=bool)
        outcome = run([below(8), below(3), below(9)], range(10), rows=[8, 9], extra=following)
        assert bits(outcome) == [[True, True, False], [True, True, False]]
        assert outcome.profile.basis == (0, 1, 2)
        assert outcome.profile.n_extra == 2

    def test_of_time(self):
        now = iter(range(0, 10_000, 7))
        costs = run([below(8), below(3)], range(10), clock=lambda: next(now)).profile.costs
        assert costs.sums[:3].tolist() == [[1, 1], [10, 8], [7, 7]]

    def test_a_filter_that_no_row_reaches_is_not_called(self):
        profile = run([below(0), below(3)], range(10)).profile
        assert profile.rows_in.tolist() == [10, 0]
        assert profile.costs.is_known.tolist() == [True, False]

    def test_a_call_that_only_profiling_needs(self):
        profile = run([below(0), below(3)], range(10), rows=[1, 4]).profile
        assert profile.rows_in.tolist() == [10, 0]
        assert profile.costs.sums[1].tolist() == [10, 2]
        assert profile.n_extra == 2


@pytest.mark.parametrize("n_sampled", [0, 1])
def test_an_empty_batch(n_sampled):
    calls = []
    watched = predicate(calls.append, reads=["a"], name="watched")
    outcome = run([watched, below(3)], pa.array([], pa.int64()), rows=NOTHING)
    assert outcome.keep.tolist() == []
    assert outcome.errors == {}
    assert (outcome.profile.n_rows, outcome.profile.n_tuples) == (0, 0)
    assert calls == []


@pytest.mark.parametrize("arrays", ["arrow", "pandas", "numpy"])
def test_kinds_of_arrays(arrays):
    got = []

    def positive(a):
        got.append(type(a).__module__.partition(".")[0])
        return pc.greater(a, 0) if arrays == "arrow" else a > 0

    check = predicate(positive, reads=["a"], arrays=arrays)
    outcome = run([below(8), check], [-1, 0, 1, None, 9])
    assert outcome.keep.tolist() == [False, False, True, False, False]
    assert got == [{"arrow": "pyarrow"}.get(arrays, arrays)]


@pytest.mark.parametrize("arrays", ["arrow", "pandas"])
def test_negated_keeps_what_is_false_and_drops_null(arrays):
    def odd(a):
        if arrays == "arrow":
            return pc.equal(pc.bit_wise_and(a, 1), 1)
        return a.convert_dtypes() % 2 == 1

    check = ~predicate(odd, reads=["a"], arrays=arrays)
    assert run([check], [1, 2, None, 4]).keep.tolist() == [False, True, False, True]
    assert run([check, below(3)], [1, 2, None, 4]).keep.tolist() == [False, True, False, False]
    assert ArrowExecutor([check], [(0,)]).filter_ids == ("NOT odd",)


@pytest.mark.parametrize("kind", ["slice", "chunk of a table", "dictionary", "strings"])
def test_columns_of_any_layout(kind):
    array = {
        "slice": pa.array([9, 9, *range(6), 9]).slice(2, 6),
        "chunk of a table": pa.table({"a": range(6)})["a"].chunk(0),
        "dictionary": pa.array(list("abcdef")).dictionary_encode(),
        "strings": pa.array(list("abcdef"), pa.large_string()),
    }[kind]
    values = array.to_pylist()
    some = predicate(lambda a: [v in values[1:4] for v in a.to_pylist()], reads=["a"], name="some")
    one = predicate(lambda a: [v != values[2] for v in a.to_pylist()], reads=["a"], name="one")
    for order in [(0, 1), (1, 0)]:
        outcome = run([some, one], array, order=order, rows=np.arange(6))
        assert outcome.keep.tolist() == [False, True, False, True, False, False]


def test_predicates_read_their_own_columns():
    first = predicate(lambda b, a: pc.less(a, b), reads=["b", "a"], name="first")
    second = predicate(lambda c: pc.equal(c, "x"), reads=["c"], name="second")
    executor = ArrowExecutor([first, second], [(1, 0), (2,)])
    batch = [pa.array([1, 2, 3]), pa.array([2, 2, 9]), pa.array(["x", "x", "y"])]
    sample = Sample(NOTHING, 1.0, np.triu(np.ones((2, 2), dtype=bool), 1), True)
    assert executor.run(batch, (0, 1), sample).keep.tolist() == [True, False, False]


class TestUnusableResults:
    """The author's mistakes are said at once, by name, whatever else drops the row."""

    @pytest.mark.parametrize(
        "result",
        [None, True, 0.5, [0.5, 0.1, 0.2], np.ones((3, 1), dtype=bool), [True], [True] * 4, "yes"],
    )
    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_raise_at_once(self, result, order):
        wrong = predicate(lambda a: result, reads=["a"], name="wrong")
        with pytest.raises(PredicateError, match="predicate 'wrong' returned") as caught:
            run([below(9), wrong], [1, 2, 3], order=order)
        assert caught.value.__cause__ is None

    def test_raise_while_profiling_too(self):
        wrong = predicate(lambda a: None, reads=["a"], name="wrong")
        with pytest.raises(PredicateError, match="'wrong' returned None"):
            run([below(0), wrong], [1, 2, 3], rows=[1])


class TestErrors:
    """An error counts only on rows that every other filter lets through."""

    def fussy(self, bad, result=True, name="fussy"):
        calls = []

        def check(a):
            calls.append(len(a))
            if set(a.to_pylist()) & set(bad):
                raise KeyError(f"not {sorted(bad)}")
            return pa.array([result] * len(a))

        return predicate(check, reads=["a"], name=name), calls

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_on_dropped_rows_do_not_count(self, order):
        fussy, _ = self.fussy({7, 8})
        outcome = run([fussy, below(5)], range(10), order=order)
        assert outcome.errors == {}
        assert outcome.keep.tolist() == [True] * 5 + [False] * 5

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_on_kept_rows_count(self, order):
        fussy, _ = self.fussy({3, 8})
        errors = run([fussy, below(5)], range(10), order=order).errors
        (error,) = errors.values()
        assert list(errors) == [3]
        assert "'fussy' raised KeyError" in error.message
        assert "{'a': 3}" in error.message
        assert error.facts == {"predicate": "fussy", "row": {"a": 3}}
        assert isinstance(error.__cause__, KeyError)
        assert error.__cause__.__traceback__ is not None

    def test_a_row_with_an_error_takes_two_calls_at_most(self):
        fussy, calls = self.fussy(range(1000))
        assert len(run([fussy], range(1000), isolate_all=True).errors) == 1000
        assert len(calls) <= 2 * 1000

    def test_the_first_is_found_in_a_few_calls(self):
        fussy, calls = self.fussy({700})
        outcome = run([fussy], range(1024))
        assert list(outcome.errors) == [700]
        assert len(calls) < 40

    def test_all_are_found_if_asked_for(self):
        fussy, calls = self.fussy({3, 500, 700})
        outcome = run([fussy, below(600)], range(1024), isolate_all=True)
        assert list(outcome.errors) == [3, 500]
        assert outcome.keep.tolist() == [True] * 600 + [False] * 424
        assert len(calls) < 100
        assert outcome.profile.n_kept == 598

    def test_two_filters_may_settle_each_others_errors(self):
        one, _ = self.fussy({1, 2}, name="one")
        two = predicate(lambda a: [6 // v > 2 for v in a.to_pylist()], reads=["a"], name="two")
        outcome = run([one, two], [0, 1, 2, 6])
        assert outcome.errors.keys() == {0, 1, 2}
        assert outcome.keep.tolist() == [True, True, True, False]

    def test_only_the_users_own_exceptions_are_settled(self):
        def stop(a):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run([predicate(stop, reads=["a"]), below(0)], [1])

    def test_rows_set_aside_are_counted(self):
        fussy, _ = self.fussy({7})
        profile = run([fussy, below(5)], range(10)).profile
        assert profile.n_raised.tolist() == [10, 0]
        assert profile.rows_in.tolist() == [0, 10]
        assert profile.n_evaluations == 20


class TestFragile:
    """A filter that raises on rows that only profiling brings to it."""

    def executor(self):
        calls = []

        def root(a):
            calls.append(len(a))
            if pc.min(a).as_py() < 0:
                raise ValueError("negative")
            return pc.less(pc.sqrt(a), 2)

        checks = [
            predicate(lambda a: pc.greater_equal(a, 0), reads=["a"], name="guard"),
            predicate(root, reads=["a"], name="root"),
        ]
        return ArrowExecutor(checks, [(0,), (0,)]), calls

    def run(self, executor, values, rows):
        full = np.triu(np.ones((2, 2), dtype=bool), 1)
        sample = Sample(np.asarray(rows, dtype=np.int64), 1.0, full, True)
        return executor.run([pa.array(values, pa.float64())], (0, 1), sample)

    @pytest.mark.parametrize("rows", [[], [0], [0, 1, 2], range(6)])
    def test_never_errs_and_never_changes_the_answer(self, rows):
        executor, _ = self.executor()
        for _ in range(3):
            outcome = self.run(executor, [-1, 0, 1, 9, -4, 2], rows)
            assert outcome.errors == {}
            assert outcome.keep.tolist() == [False, True, True, False, False, True]
            assert outcome.profile.n_raised.tolist() == [0, 0]
            assert outcome.profile.rows_in.tolist() == [6, 4]

    def test_is_asked_apart_from_then_on(self):
        executor, calls = self.executor()
        self.run(executor, [-1, 1, 9], [0])
        self.run(executor, [-1, 1, 9], [0])
        self.run(executor, [1, 1, 9], [0])
        assert calls == [3, 2, 1, 2, 1, 3]

    def test_bits_that_cannot_be_known_count_as_passed(self):
        executor, _ = self.executor()
        assert bits(self.run(executor, [-1, 9], [0, 1])) == [[True, False], [False, True]]

    @pytest.mark.parametrize("rows", [[0], [0, 1]])
    def test_where_no_row_is_left(self, rows):
        executor, _ = self.executor()
        outcome = self.run(executor, [-1, -2], rows)
        assert outcome.errors == {}
        assert outcome.keep.tolist() == [False, False]
        assert bits(outcome) == [[True, False]] * len(rows)


def test_a_result_that_the_function_uses_again_does_no_harm():
    buffer = np.zeros(10, dtype=bool)

    def lazy(a):
        result = buffer[: len(a)]
        result[:] = pc.less(a, 5).to_numpy(zero_copy_only=False)
        return result

    checks = [predicate(lazy, reads=["a"], name=name) for name in ("one", "two")]
    checks.append(predicate(lambda a: buffer.fill(0) or [True] * len(a), reads=["a"], name="three"))
    outcome = run(checks, range(10), rows=[1, 7])
    assert outcome.keep.tolist() == [True] * 5 + [False] * 5


def test_inputs_are_not_changed():
    def rude(a):
        a[:] = 0
        return np.ones(len(a), dtype=bool)

    checks = [predicate(rude, reads=["a"], arrays="numpy", name="rude"), below(2)]
    array = pa.array([1.0, 5.0, None])
    run(checks, array)
    assert array.to_pylist() == [1.0, 5.0, None]


def test_a_predicate_may_use_threads():
    def threaded(a):
        done = []
        worker = threading.Thread(target=lambda: done.append(pc.less(a, 2)))
        worker.start()
        worker.join()
        return done[0]

    assert run([predicate(threaded, reads=["a"])], [1, 2]).keep.tolist() == [True, False]


def test_a_function_of_one_value_is_called_for_each_row():
    calls = []

    def odd(a):
        calls.append(a)
        return None if a is None else a % 2 == 1

    check = predicate(odd, reads=["a"], arrays="rows")
    assert run([below(8), check], [1, 2, None, 3, 9]).keep.tolist() == [
        True, False, False, True, False,
    ]  # fmt: skip
    assert calls == [1, 2, 3]
    assert run([~check], [1, 2, None]).keep.tolist() == [False, True, False]


def test_an_error_of_one_row_counts_only_if_the_row_passes_the_others():
    check = predicate(lambda a: 1 / a > 0, reads=["a"], arrays="rows", name="inverse")
    kept = run([predicate(lambda a: pc.not_equal(a, 0), reads=["a"]), check], [2, 0, -2, 4])
    assert kept.keep.tolist() == [True, False, False, True]
    assert kept.errors == {}
    (error,) = run([check], [2, 0, 4]).errors.values()
    assert "ZeroDivisionError" in str(error)
    assert "handle that value in the predicate" in str(error)


@pytest.mark.parametrize("arrays", ["arrow", "pandas", "numpy"])
@pytest.mark.parametrize(
    "fn", [lambda a: a.bit_length() > 1, lambda a: int(a.hex(), 16) > 1], ids=["int", "bytes"]
)
def test_a_function_of_one_value_over_arrays_is_told_what_to_do(fn, arrays):
    check = predicate(fn, reads=["a"], arrays=arrays, name="one")
    (error, *_) = run([check], [2, 5]).errors.values()
    assert f'gets whole {arrays} arrays; use arrays="rows"' in str(error)


def test_type_hints_tell_a_function_of_one_value():
    def short(a: int) -> bool:
        return "x" * a < 3

    check = predicate(short, reads=["a"])
    (error, *_) = run([check], [2, 5]).errors.values()
    assert 'use arrays="rows"' in str(error)
