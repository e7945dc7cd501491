"""The site has a page for whatever is public; ``make docs`` builds it, with warnings as errors."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import eddyline
from eddyline.change import DETECTORS
from eddyline.ordering import ORDERING_POLICIES
from eddyline.runtime.monitors import MONITORS
from eddyline.testing import __name__ as testing

ROOT = Path(__file__).resolve().parents[1]
API = "\n".join(page.read_text("utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
SHOWN = set(re.findall(r"(?m)^\.\. auto\w+:: (\S+)$", API))
CONTENTS = next(
    ast.literal_eval(node.value)
    for node in ast.parse((ROOT / "docs" / "conf.py").read_text("utf-8")).body
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CONTENTS"
)


def names_of_modules(module: str) -> set[str]:
    """Return what a public module offers: what the names of ``eddyline`` say of rooms."""
    return {f"{module}.{name}" for name in getattr(eddyline, module.split(".")[1]).__all__}


@pytest.mark.parametrize("name", eddyline.__all__)
def test_every_public_name_is_in_the_reference(name):
    rooms = {"models", "sigma"}
    wanted = names_of_modules(f"eddyline.{name}") if name in rooms else {f"eddyline.{name}"}
    assert wanted - SHOWN == set()


@pytest.mark.parametrize(
    "kind",
    [*DETECTORS.values(), *ORDERING_POLICIES.values(), *MONITORS.values()],
    ids=lambda kind: kind.__name__,
)
def test_options_that_are_chosen_by_name_are_in_the_reference(kind):
    assert f"{kind.__module__}.{kind.__qualname__}" in SHOWN


def test_every_module_of_testing_is_in_the_reference():
    folder = ROOT / "src" / "eddyline" / "testing"
    modules = {f"{testing}.{file.stem}" for file in folder.glob("[a-z]*.py")}
    assert modules - SHOWN == set()


def test_every_page_has_a_place_in_the_side_bar():
    listed = {f"{name}.md" for pages in CONTENTS.values() for name in pages}
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")]
    assert {page.relative_to(ROOT).as_posix() for page in pages} - listed == set()


def test_ci_builds_the_site():
    assert re.search(r"(?m)^make .*\bdocs\b", (ROOT / ".ci" / "run").read_text("utf-8"))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(r"(?m)^check: .*\bdocs\b", makefile)
    assert re.search(r"sphinx .*-W", makefile)
