"""The package keeps to its rooms and its sizes; the check of imports finds every breach."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[1] / "tools" / "check_imports.py"


@pytest.fixture
def check():
    spec = importlib.util.spec_from_file_location("check_imports", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def breaches(check, tmp_path, monkeypatch):
    """Return what is said of a module of that path with that code."""
    source = tmp_path / "src" / "eddyline"
    monkeypatch.setattr(check, "SOURCE", source)

    def breaches(path, code):
        file = source / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
        return check.breaches(file)

    return breaches


@pytest.mark.large("reads the whole package, as `make lint` does before all tests")
def test_the_package_keeps_the_rules(check, capsys):
    assert check.main() == 0, capsys.readouterr().out


def test_every_room_of_the_package_is_listed(check):
    rooms = {each.relative_to(check.SOURCE).parts[0] for each in check.SOURCE.rglob("*.py")}
    assert {each.removesuffix(".py") for each in rooms} == {*check.ROOMS, *check.FACE}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("stats/costs.py", "import numpy, os.path\nfrom eddyline.data import codes"),
        ("stats/costs.py", "from eddyline.stats.profile import ProfileWindow"),
        ("options.py", "from eddyline.errors import OptionError"),
        ("spark/run.py", "import pyspark\nfrom eddyline.runtime import loop"),
        ("__init__.py", "from eddyline.spark import engine"),
        ("stats/costs.py", "from . import window\nfrom ..data import codes"),
    ],
)
def test_what_is_allowed(breaches, path, code):
    assert breaches(path, code) == []


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("stats/x.py", "import pyspark", "stats/ imports pyspark"),
        ("stats/x.py", "from pyspark.sql import functions", "stats/ imports pyspark"),
        ("stats/x.py", "def f():\n    import pyspark.sql", "stats/ imports pyspark"),
        ("stats/x.py", "from eddyline.runtime import loop", "stats/ imports runtime/"),
        ("stats/x.py", "import eddyline.spark.run.run", "stats/ imports spark/"),
        ("stats/x.py", "from eddyline import ordering", "stats/ imports ordering/"),
        ("options.py", "from eddyline.stats import costs", "options/ imports stats/"),
        ("stats/x.py", "from eddyline.helpers import f", "helpers is not a room"),
        ("stats/x.py", "from ..runtime import loop", "stats/ imports runtime/"),
        ("stats/x.py", "from .. import runtime", "stats/ imports runtime/"),
        ("stats/deep/x.py", "from ...runtime import loop", "stats/ imports runtime/"),
        ("stats/__init__.py", "from ..runtime import loop", "stats/ imports runtime/"),
        ("utils/x.py", "from eddyline import errors", "utils is not a room"),
        ("utils/x.py", "", "utils is not a room"),
    ],
)
def test_a_breach_is_reported_with_its_place(breaches, path, code, said):
    found = breaches(path, code)
    assert len(found) == 1
    assert said in found[0]
    assert f"src/eddyline/{path}:" in found[0]


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("report/terminal.py", "from eddyline.report import rules", "imports rules/"),
        ("report/html.py", "from eddyline.joins.view import JoinView", "imports joins/"),
        ("report/sections.py", "import eddyline.filters.loop", "imports filters/"),
        ("report/sections.py", "def f():\n    from . import joins", "imports joins/"),
        ("spark/run/x.py", "from eddyline.spark.rules.live import L", "imports rules/"),
        ("spark/operator.py", "from eddyline.spark import filters", "imports filters/"),
    ],
)
def test_what_serves_every_operator_names_none(breaches, path, code, said):
    (found,) = breaches(path, code)
    assert said in found
    assert "serves every operator" in found


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("report/rules.py", "from eddyline.rules.view import RuleView"),
        ("report/terminal.py", "from eddyline.query.rules import sources"),
        ("spark/rules/operator.py", "from eddyline.report import rules"),
        ("spark/engine.py", "from eddyline.spark.joins.window_join import window_join"),
        ("runtime/x.py", "from eddyline.runtime.records import joins"),
    ],
)
def test_an_operators_own_rooms_name_it(breaches, path, code):
    assert breaches(path, code) == []


def test_techniques_do_not_import_each_other(breaches, check, monkeypatch):
    monkeypatch.setattr(check, "TECHNIQUES", {"stats", "data"})
    (found,) = breaches("stats/x.py", "from eddyline.data import codes")
    assert "techniques do not import each other: stats, data" in found
    assert breaches("stats/x.py", "from eddyline.stats import costs") == []


def test_breaches_fail_the_check(breaches, check, capsys):
    breaches("stats/x.py", "import pyspark")
    assert check.main() == 1
    assert "src/eddyline/stats/x.py:1: stats/ imports pyspark" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("from eddyline.stats import b", "from eddyline.stats import a"),
        ("from . import b", "from .a import f"),
        ("import eddyline.stats.b", "def f():\n    from eddyline.stats.a import g"),
        ("if TYPE_CHECKING:\n    from eddyline.stats.b import B", "import eddyline.stats.a"),
    ],
)
def test_a_circle_fails_the_check(breaches, check, capsys, first, second):
    breaches("stats/__init__.py", "")
    breaches("stats/a.py", first)
    breaches("stats/b.py", second)
    breaches("stats/c.py", "from eddyline.stats import a")
    assert check.circles() == [["stats.a", "stats.b"]]
    assert check.main() == 1
    assert "modules that import one another: stats.a, stats.b" in capsys.readouterr().out


def test_a_circle_leads_through_a_package(breaches, check):
    breaches("stats/__init__.py", "from eddyline.stats.a import f")
    breaches("stats/a.py", "from eddyline.stats import TABLE")
    assert check.circles() == [["stats", "stats.a"]]


def test_every_room_says_what_it_may_import(check):
    rooms = check.SOURCE.rglob("*/__init__.py")
    texts = {each.parent: ast.get_docstring(ast.parse(each.read_text())) for each in rooms}
    assert [
        room
        for room, text in texts.items()
        if not re.search(r"\bimports\b", text or "", re.IGNORECASE)
    ] == []
