"""Each test is in ``make test`` or ``make test-large``, and each room has its part in both.

Those marked ``soak`` are skipped, saying so, unless many examples are drawn.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
SOURCE = ROOT / "src" / "eddyline"
ROOMS = sorted(each.parent.name for each in SOURCE.glob("*/__init__.py"))
SPARK_ROOMS = ["aggregates", "alarms", "filters", "joins", "models", "rules", "run"]
CHOOSES = re.compile(r"\s(-m|-k|--ignore\S*|--deselect\S*|--lf|--ff|-x|tests/\S*)\s")


def is_large(marks: list[ast.expr]) -> bool:
    return any("pytest.mark.large" in ast.unparse(mark) for mark in marks)


def listed(path: Path) -> dict[str, bool]:
    """Return the tests of a file by name, and whether ``make test`` leaves them out.

    A test of which only some parameters are large counts as one that it runs.
    """
    tree = ast.parse(path.read_text("utf-8"))
    found = {}

    def look(body: list[ast.stmt], prefix: str, *, large: bool) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                look(node.body, f"{node.name}::", large=large or is_large(node.decorator_list))
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                whole = [each for each in node.decorator_list if not is_parametrized(each)]
                found[prefix + node.name] = large or is_large(whole)

    marked = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    look(tree.body, "", large=is_large(marked))
    return found


def is_parametrized(decorator: ast.expr) -> bool:
    return "mark.parametrize(" in ast.unparse(decorator)


def quick_tests(folder: Path) -> list[str]:
    """Return the tests below a folder that ``make test`` runs."""
    files = folder.rglob("test_*.py")
    return [name for file in files for name, large in listed(file).items() if not large]


def recipe(target: str) -> str:
    """Return the command of a target of the Makefile, variables put in."""
    text = (ROOT / "Makefile").read_text("utf-8")
    (command,) = re.findall(rf"^{target}:.*\n\t@(.*(?:\\\n.*)*)$", text, re.MULTILINE)
    variables = dict(re.findall(r"^(\w+) :?\??= (.*)$", text, re.MULTILINE))
    while "$(" in command:
        command = re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], command)
    return f" {command} "


def test_the_small_suite_leaves_out_what_is_large_and_nothing_else():
    suites = {"test": ' -m "not large" ', "test-large": " -m large ", "test-all": " "}
    for target, choice in suites.items():
        command = recipe(target).replace(" -m pytest ", " ")
        assert choice in command
        assert not CHOOSES.search(command.replace(choice, " ")), f"{target} leaves out tests"
    ran = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert {"make test", "make test-large ONE_IN=3"} <= {*ran}


def test_pytest_finds_all_tests_by_itself():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]
    assert options["ini_options"]["testpaths"] == ["tests"]
    assert not CHOOSES.search(f" {options['ini_options']['addopts']} ")
    assert "python_files" not in options["ini_options"]


@pytest.mark.parametrize(
    "path",
    sorted(each for each in TESTS.rglob("*.py") if not each.name.startswith("test_")),
    ids=lambda path: path.relative_to(TESTS).as_posix(),
)
def test_what_pytest_does_not_read_holds_no_tests(path):
    assert listed(path) == {}


def test_every_folder_of_tests_is_a_package():
    """Otherwise two files of one name in two folders cannot both be read."""
    folders = {each.parent for each in TESTS.rglob("test_*.py")}
    assert {each for each in folders if not (each / "__init__.py").exists()} == set()


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_has_tests_in_the_small_suite(room):
    assert quick_tests(TESTS / room), f"`make test` runs nothing of tests/{room}"


@pytest.mark.parametrize("room", SPARK_ROOMS)
def test_every_operator_runs_on_spark_in_the_small_suite(room):
    files = (TESTS / "spark" / room).rglob("test_*.py")
    on_spark = [each for each in files if "(spark" in each.read_text("utf-8")]
    assert not all(large for each in on_spark for large in listed(each).values())
