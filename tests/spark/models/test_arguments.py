"""What a caller gives to segments is checked without Spark."""

from types import SimpleNamespace

import pytest

from eddyline.errors import OptionError
from eddyline.models.steps import Shape
from eddyline.spark.models.graphs import check_attribute, read_columns, read_pair


@pytest.mark.parametrize("name", ["ship", "Ship", "time", "TIME", "Since", "until"])
def test_an_attribute_has_no_name_of_a_key_or_a_time_whatever_the_case(name):
    with pytest.raises(OptionError, match="has the name of a column of results"):
        check_attribute(name, ["SHIP", "fleet"])
    check_attribute(f"{name}_x", ["SHIP", "fleet"])


@pytest.mark.parametrize("name", ["err_x", "ERR_", "coef_x", "Coef_err_x", "lo", "HI", "origin",
                                  "tomb", "is_point"])  # fmt: skip
def test_nor_one_of_a_column_of_segments(name):
    with pytest.raises(OptionError, match="give it another name") as found:
        check_attribute(name, ["ship"])
    assert found.value.facts["name"] == name
    check_attribute(f"x_{name}", ["ship"])
    check_attribute("error_x", ["ship"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": "x", "err_x": "x - 1"}, "'err_x' begins with"),
        ({"lo": "x"}, "'lo' has the name of a column of results"),
        ({"z": "x", "Z": "2 * x"}, "two attributes are called 'Z'"),
    ],
)
def test_what_is_selected_has_names_of_its_own(columns, message):
    graph = SimpleNamespace(shape=Shape(("ship",), ("x",)))
    with pytest.raises(OptionError, match=message):
        read_columns(graph, (), columns)
    assert list(read_columns(graph, ("X",), {"y": "x * x"}).columns) == ["x", "y"]


@pytest.mark.parametrize("name", ["err", "Coef", "err_a"])
def test_nor_do_sides_make_such_names(name):
    with pytest.raises(OptionError, match="would be a column of segments"):
        read_pair((name, "b"))
    assert read_pair(("error", "b")) == ("error", "b")
