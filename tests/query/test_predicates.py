"""Predicates as values."""

import functools
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

from eddyline.errors import OptionError, QueryError
from eddyline.query.predicates import (
    FunctionPredicate,
    SqlPredicate,
    as_predicate,
    named,
    predicate,
    sql_predicate,
)


@predicate("payload", "dst_port")
def suspicious(payload, dst_port):
    """Port 4444 with a long payload."""
    return pc.and_(pc.greater(pc.utf8_length(payload), 2), pc.equal(dst_port, 4444))


class TestDecorator:
    def test_makes_a_predicate_that_is_still_a_function(self):
        assert isinstance(suspicious, FunctionPredicate)
        assert suspicious.reads == ("payload", "dst_port")
        assert suspicious.name == "suspicious"
        assert suspicious.__doc__ == "Port 4444 with a long payload."
        assert suspicious.text == "suspicious(payload, dst_port)"
        assert suspicious(pa.array(["abc"]), pa.array([4444])).to_pylist() == [True]

    def test_takes_options(self):
        @predicate("a", name="n", arrays="pandas", deterministic=False)
        def f(a):
            return a

        assert (f.name, f.arrays, f.deterministic) == ("n", "pandas", False)

    def test_takes_reads_by_keyword(self):
        @predicate(reads=["a"])
        def f(a):
            return a

        assert f.reads == ("a",)


class TestFactory:
    def test_takes_a_function_with_its_columns(self):
        made = predicate(pc.is_valid, reads=["a"], name="there", arrays="arrow")
        assert (made.name, made.reads) == ("there", ("a",))

    def test_a_single_column_may_be_a_plain_string(self):
        assert predicate(lambda a: a, reads="abc").reads == ("abc",)

    def test_a_predicate_can_be_given_other_columns(self):
        other = predicate(suspicious, reads=["p2", "d2"])
        assert other == predicate(suspicious.fn, reads=["p2", "d2"])

    def test_reads_may_be_expressions_and_may_repeat_in_a_query(self):
        assert predicate(lambda a, b: a, reads=["a + 1", "upper(b)"]).reads == ("a + 1", "upper(b)")

    @pytest.mark.parametrize(
        ("fn", "name"),
        [
            (lambda a: a, "lambda(a)"),
            (functools.partial(lambda k, a: a, 1), "lambda(a)"),
            (functools.partial(suspicious.fn, dst_port=1), "suspicious"),
        ],
    )
    def test_every_callable_gets_a_readable_name(self, fn, name):
        assert predicate(fn, reads=["a"]).name == name

    def test_a_callable_object_is_named_by_its_class(self):
        class Model:
            def __call__(self, a):
                return a

        assert predicate(Model(), reads=["a"]).name == "Model"


class TestMisuse:
    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (predicate, "was given nothing"),
            (lambda: predicate(lambda: True), "reads no columns"),
            (lambda: predicate(lambda *a: a), "reads no columns"),
            (lambda: predicate(lambda a: a, reads=[]), "reads no columns"),
            (lambda: predicate("a", reads=["b"]), "given twice"),
            (lambda: predicate(5), "must be callable, got int"),
            (lambda: predicate("a")(5), "must be callable, got int"),
            (lambda: predicate("a", 5), "was given str, int"),
            (lambda: predicate("a", ""), "reads ''"),
            (lambda: predicate("a", "a"), "reads 'a' twice"),
            (lambda: predicate(lambda a: a, reads=["a", "A"]), "reads 'A' twice"),
            (lambda: predicate(lambda a: a, reads=["a", "b"]), "2 column(s) (a, b), but"),
            (lambda: predicate(lambda a, b: a, reads=["a"]), "missing a required argument: 'b'"),
            (lambda: sql_predicate("  "), "needs a text"),
            (lambda: SqlPredicate(None), "needs a text"),
            (lambda: as_predicate(predicate("a > 5")), "decorator that still waits"),
            (lambda: as_predicate(7), "got int"),
        ],
    )
    def test_says_what_to_do(self, make, says):
        with pytest.raises(QueryError) as caught:
            make()
        assert says in str(caught.value)

    def test_an_unknown_kind_of_arrays_gets_a_hint(self):
        with pytest.raises(OptionError, match=r"unknown kind of arrays 'panda'.*'pandas'"):
            predicate(lambda a: a, reads=["a"], arrays="panda")

    def test_a_signature_with_room_is_no_mistake(self):
        predicate(lambda *columns: columns[0], reads=["a", "b", "c"])
        predicate(lambda a, limit=3: a, reads=["a"])


def test_arguments_name_the_columns_where_nobody_else_does():
    def near(lat, lon, limit=3):
        return lat < limit

    assert predicate(near).reads == ("lat", "lon")
    assert as_predicate(near).text == "near(lat, lon)"
    assert predicate(near, reads=["y", "x"]).reads == ("y", "x")
    assert predicate(functools.partial(near, 1.0)).reads == ("lon",)


class TestNegation:
    def test_is_shown_and_undone(self):
        assert (~suspicious).negated
        assert (~suspicious).text == "NOT suspicious(payload, dst_port)"
        assert (~suspicious).name == "NOT suspicious"
        assert ~~suspicious == suspicious


class TestNames:
    def test_text_is_its_own_name_on_one_line(self):
        assert SqlPredicate("a\n  >  5").name == "a > 5"

    def test_a_long_text_is_shortened(self):
        name = SqlPredicate(" OR ".join(f"a = {i}" for i in range(100))).name
        assert len(name) == 60
        assert name.endswith("…")

    def test_a_given_name_is_kept(self):
        assert sql_predicate("a > 5", name="big " * 30).name == "big " * 30

    def test_the_second_of_a_name_gets_a_number(self):
        given = [SqlPredicate("a > 5")] * 3 + [SqlPredicate("b", name="a > 5#2"), suspicious]
        names = [each.name for each in named(given)]
        assert names == ["a > 5", "a > 5#3", "a > 5#4", "a > 5#2", "suspicious"]
        assert [each.text for each in named(given)][:3] == ["a > 5"] * 3

    def test_unique_names_stay_the_same_objects(self):
        given = (SqlPredicate("a"), suspicious)
        assert all(a is b for a, b in zip(named(given), given, strict=True))


class TestPickling:
    @pytest.mark.parametrize(
        "made",
        [suspicious, ~suspicious, predicate(lambda a: pc.invert(pc.invert(a)), reads=["a"])],
        ids=["decorated", "negated", "lambda"],
    )
    def test_a_function_survives_cloudpickle(self, made):
        back = pickle.loads(cloudpickle.dumps(made))
        assert (back.name, back.reads, back.negated) == (made.name, made.reads, made.negated)
        assert back.__doc__ == made.__doc__

    def test_sql_survives_pickle(self):
        made = sql_predicate("a / b > 2", name="ratio", can_raise=False)
        assert pickle.loads(pickle.dumps(made)) == made


def test_text_and_predicates_are_taken_as_they_are():
    assert as_predicate("a > 5") == SqlPredicate("a > 5")
    assert as_predicate(suspicious) is suspicious


class Udf:
    """What ``F.udf`` makes, as far as a predicate looks at it."""

    def __init__(self, kind, deterministic=True):
        self.evalType, self.returnType, self.deterministic = kind, "boolean", deterministic
        self.func = is_odd

    def __call__(self, *columns):
        return columns


def is_odd(a):
    return a % 2 == 1


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (100, "reads=['column', …], arrays='rows')"),
        (101, "arrays='rows')"),
        (200, "arrays='pandas')"),
        (250, "arrays='arrow')"),
        (204, "over iterators or groups"),
        (251, "over iterators or groups"),
    ],
)
def test_a_udf_of_spark_is_refused_with_what_to_write(kind, advice):
    for make in (as_predicate, predicate("a"), lambda fn: predicate(fn, reads=["a"])):
        with pytest.raises(QueryError, match=r"'is_odd' is a udf of Spark's") as caught:
            make(Udf(kind))
        assert advice in str(caught.value)


def test_a_udf_that_draws_lots_keeps_its_word():
    with pytest.raises(QueryError, match=r"arrays='rows', deterministic=False\)"):
        as_predicate(Udf(100, deterministic=False))
