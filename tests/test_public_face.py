from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import eddyline


def test_all_is_sorted_and_equal_to_what_is_visible():
    assert eddyline.__all__ == sorted(set(eddyline.__all__))
    assert dir(eddyline) == eddyline.__all__


@pytest.mark.parametrize("name", eddyline.__all__)
def test_a_public_name_says_what_it_is(name):
    thing = getattr(eddyline, name)
    where = thing.__name__ if inspect.ismodule(thing) else thing.__module__
    assert where.startswith("eddyline.")
    assert inspect.getdoc(thing)
    if inspect.isclass(thing):
        public = [each for key, each in vars(thing).items() if key[0] != "_" and callable(each)]
        assert all(inspect.getdoc(each) for each in public)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'eddyline' has no attribute 'all_off'"):
        _ = eddyline.all_off


def test_errors_can_be_caught_without_another_import():
    assert issubclass(eddyline.errors.OptionError, ValueError)


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_importing_eddyline_is_light():
    heavy = {"pyspark", "pandas", "plotly", "typer", "rich"}
    assert not heavy & loaded_by("import eddyline")
    assert not heavy & loaded_by("import eddyline; dir(eddyline); eddyline.predicate")


def test_the_room_of_sigma_rules_is_light_until_it_reads():
    assert not {"pyspark", "sigma", "yaml"} & loaded_by("import eddyline as el; el.sigma.load")


@pytest.mark.large
def test_a_set_of_rules_needs_no_kernels_on_the_driver():
    assert "numba" not in loaded_by("import eddyline.spark.rules.rule_set")


def test_a_detector_loads_only_what_it_needs():
    build = "import eddyline as el; el.detector_bank({!r}, 3)"
    heavy = {"pyspark", "pandas", "numba", "scipy.special", "river"}
    assert not heavy & loaded_by(build.format("page_hinkley"))
    assert "numba" in loaded_by(build.format("adwin"))


@pytest.mark.parametrize(
    "module",
    [
        "runtime.order_loop",
        "filters.executor",
        "ordering",
        "stats.profile",
        "report.terminal",
    ],
)
def test_what_decides_needs_no_spark(module):
    assert "pyspark" not in loaded_by(f"import eddyline.{module}")
