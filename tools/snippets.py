"""The snippets of a page as one script, so that what a page tells can be run.

``python tools/snippets.py PAGE`` prints the script; it runs in an empty folder. Python stands on the
lines where the page has it, so that errors name these. A block of another language that begins with
a comment of a file's name (``-- alerts.sql``, ``# rules/shell.yml``) becomes that file; commands of
``eddyline`` are run, other commands are not.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

BLOCK = re.compile(r"(?ms)^```(?P<language>[a-z]+)\n(?P<text>.*?)^```$")
FILE = re.compile(r"(?:#|--) (?P<name>[\w./-]+\.[a-z]+)\b")
"""The first line of a block that is a file."""
COMMAND = re.compile(r"(?m)^eddyline .*$")

AROUND = (
    "import os, subprocess, sys, textwrap; from pathlib import Path; "
    "_file = lambda name, text: (Path(name).parent.mkdir(parents=True, exist_ok=True), "
    "Path(name).write_text(text, 'utf-8')); "
    "_run = lambda line: subprocess.run("
    "f'\"{sys.executable}\" -m {line}', shell=True, check=True, stdin=subprocess.DEVNULL)\n"
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


def has_snippets(page: Path) -> bool:
    """Return whether a page has Python, which then has to run."""
    return any(found["language"] == "python" for found in BLOCK.finditer(page.read_text("utf-8")))


if __name__ == "__main__":
    sys.stdout.write(script(Path(sys.argv[1])))
