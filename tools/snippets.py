"""The snippets of a page as one script, and how it is run: what a page tells has to be so.

``python -m tools.snippets PAGE`` prints the script; it runs in an empty folder. Python is on the
lines where the page has it, so that errors name these. A block of another language that begins with
a comment of a file's name (``-- alerts.sql``, ``# rules/shell.yml``) becomes that file; commands of
``eddyline`` are run, other commands are not. A block of ``text`` in a tutorial is a part of
what it prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GIVEN = ROOT / "tests" / "spark" / "given"
"""What pages take as given, such as the DataFrame ``events``: Python files by the pages' names."""
BLOCK = re.compile(r"(?ms)^```(?P<language>[a-z]+)\n(?P<text>.*?)^```$")
FILE = re.compile(r"(?:#|--) (?P<name>[\w./-]+\.[a-z]+)\b")
"""The first line of a block that is a file."""
COMMAND = re.compile(r"(?m)^eddyline .*$")

AROUND = (
    "import os, subprocess, sys, textwrap; from pathlib import Path; "
    "_file = lambda name, text: (Path(name).parent.mkdir(parents=True, exist_ok=True), "
    "Path(name).write_text(text, 'utf-8')); "
    "_run = globals().get('_run') or (lambda line: subprocess.run("
    "f'\"{sys.executable}\" -m {line}', shell=True, check=True, stdin=subprocess.DEVNULL))\n"
)
"""What the blocks that are no Python need; it stands before the first of them."""


def script(page: Path) -> str:
    """Return the snippets of a page as one Python script, a line for each line of the page."""
    text = page.read_text("utf-8")
    lines = [""] * (text.count("\n") + 1)
    lines[0] = AROUND.strip()  # a page begins with its title
    for found in BLOCK.finditer(text):
        first = text.count("\n", 0, found.start("text"))
        own = statements(found["language"], found["text"])
        lines[first : first + len(own)] = own
    return "\n".join(lines) + "\n"


def statements(language: str, text: str) -> list[str]:
    """Return the lines of Python that do what a block says."""
    if named := FILE.match(text):
        return [f"_file({named['name']!r}, {text!r})"]
    if language == "python":
        return text.splitlines()
    if language == "bash":
        return [f"_run({line!r})" for line in COMMAND.findall(text)]
    return []


def printed(page: Path) -> list[str]:
    """Return what a page says that its snippets print, a line each."""
    blocks = [
        each for each in BLOCK.finditer(page.read_text("utf-8")) if each["language"] == "text"
    ]
    return [line.strip() for block in blocks for line in block["text"].splitlines()]


def has_snippets(page: Path) -> bool:
    """Return whether a page has Python, which then has to run."""
    return any(found["language"] == "python" for found in BLOCK.finditer(page.read_text("utf-8")))


def parts(page: Path) -> list[tuple[str, str]]:
    """Return what a page takes as given, if it does, and its script; by name."""
    given = GIVEN / f"{page.stem.lower()}.py"
    found = [(str(given), given.read_text("utf-8"))] if given.exists() else []
    return [*found, (str(page), script(page))]


def run(page: Path, python: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run the snippets of a page in a process of its own, and return how it went.

    Args:
        page: the Markdown file.
        python: the interpreter; what it has installed is used, and not the checkout.
        place: an empty folder to make files in.
    """
    # The folder of relative paths is where Spark was started.
    folder = place / "folder"
    folder.mkdir()
    code = [f"exec(compile({text!r}, {name!r}, 'exec'))" for name, text in parts(page)]
    return subprocess.run(
        [python, "-c", "\n".join(code)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )


if __name__ == "__main__":
    sys.stdout.write(script(Path(sys.argv[1])))
