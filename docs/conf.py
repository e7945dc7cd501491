"""How Sphinx makes the site: the Markdown of the repository as it stands, and docstrings.

The pages are those that are read in a checkout; the repository is the source folder, so that their
links lead the same way here and there. ``make docs`` builds it, and fails on any warning.
"""

from __future__ import annotations

import importlib.metadata
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "eddyline"
author = "the authors of eddyline"
version = release = importlib.metadata.version("eddyline")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = ["*.md", "benchmarks/**.md", "docs/**.md"]
exclude_patterns = [".*", "build", "dist", "out", "src", "tests", "tools"]
root_doc = "README"

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = [
    "misc.highlighting_failure",  # SQL of ours that the highlighter does not know
]

html_theme = "furo"
html_title = "eddyline"
html_static_path: list[str] = []
html_copy_source = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {
    "members": True,
    "inherited-members": True,
    "exclude-members": "of, taken, resolved",
}
napoleon_numpy_docstring = False
default_role = "code"

CONTENTS = {
    "Start here": [
        "docs/tour",
        "docs/tutorials/detection_with_sigma",
        "docs/tutorials/features_for_serving",
        "docs/tutorials/fleet_of_vessels",
        "docs/tutorials/kafka_to_lakehouse",
        "docs/questions",
        "docs/how_it_works",
    ],
    "What it does": [
        "docs/filters",
        "docs/routing",
        "docs/sharing",
        "docs/sigma",
        "docs/joins",
        "docs/aggregates",
        "docs/models",
        "docs/change_detection",
        "docs/evidence",
        "docs/kafka",
        "docs/lakehouse",
        "docs/lane",
    ],
    "Running it": [
        "docs/options",
        "docs/page",
        "docs/hands_on",
        "docs/metrics",
        "docs/operations",
        "docs/clusters",
        "SECURITY",
    ],
    "Reference": ["docs/api/README", "docs/glossary", "docs/sources", "docs/references"],
    "What it is worth": ["docs/benchmarks", "benchmarks/scenarios", "benchmarks/results/*"],
    "The project": ["CHANGELOG", "CONTRIBUTING", "docs/decisions/README"],
}
"""Pages by the headings of the side bar; a page that is missing here is a warning."""
BELOW = {"docs/api/README": "[a-z]*", "docs/decisions/README": "[0-9]*"}
"""Pages that have all others of their folder below them."""


def add_contents(_app: Sphinx, name: str, source: list[str]) -> None:
    """Give a page the list of those below it, which readers of the source need not see."""
    if name == root_doc:
        for caption, pages in CONTENTS.items():
            source[0] += toctree(pages, f":caption: {caption}")
    elif name in BELOW:
        source[0] += toctree([BELOW[name]])


def toctree(pages: list[str], *options: str) -> str:
    """Return the hidden list of pages that the side bar is made of."""
    return "\n".join(["\n\n```{toctree}", ":hidden:", ":glob:", *options, "", *pages, "```\n"])


def add_index(app: Sphinx, error: Exception | None) -> None:
    """Show the first page where servers look for one."""
    if error is None and app.builder.format == "html":
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Connect what is above."""
    app.connect("source-read", add_contents)
    app.connect("build-finished", add_index)
