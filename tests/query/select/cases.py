"""Queries and what is read of them, as text: the format of ``queries.txt`` and its like.

A section (``== keys, residual``) names the parts that its cases are about, a title (``-- …``) says
what they have in common. A case is a query, ``=>``, and its parts with ``|`` between them.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, QueryError
from eddyline.models.sql.scope import Call, Made
from eddyline.query.steps import ReadStep, steps, tree

FOLDER = Path(__file__).parent

COLUMNS_OF_S = {
    "k": "int",
    "v": "double",
    "txt": "string",
    "arr": "array<int>",
    "st": "struct<x:int,k:int>",
    "ts": "timestamp",
}
"""Columns of the stream that most queries are over."""


def words_of(query):
    return re.findall(r"\w+|`[^`]*`|\S", query)


@st.composite
def broken(draw, query):
    """Draw a query some of whose words are missing, and some stand at another place, too."""
    words = words_of(query)
    dropped = draw(st.lists(st.integers(0, len(words) - 1), max_size=4, unique=True))
    added = draw(st.lists(st.sampled_from(words), max_size=3))
    place = draw(st.integers(0, len(words)))
    kept = [word for number, word in enumerate(words) if number not in dropped]
    return " ".join([*kept[:place], *added, *kept[place:]])


def check_is_read_or_refused(read, query):
    said = ""
    try:
        found = read(query)
    except QueryError as error:
        said = error.message
    assert said.splitlines()[-1].strip() == "^" if said else found


@dataclass(frozen=True)
class Case:
    """A query and its parts."""

    title: str
    query: str
    kinds: tuple[str, ...]
    """The kinds of parts that are compared."""
    parts: tuple[str, ...]

    def __str__(self):
        return f"{self.title}: {self.query}"


def cases(name="queries.txt"):
    """Return the cases of a file."""
    found, kinds, title, lines = [], (), "", []
    for line in (FOLDER / name).read_text("utf-8").splitlines():
        if line.startswith("== "):
            kinds = tuple(line.removeprefix("== ").split(", "))
        elif line.startswith("-- "):
            title = line.removeprefix("-- ")
        elif line:
            lines.append(line)
        query, *parts = re.split(r"\s=> ", "\n".join(lines), maxsplit=1)
        if parts:
            found.append(Case(title, query, kinds, tuple(parts[0].split(" | "))))
            lines = []
    assert not lines, f"a case without parts: {lines}"
    return found


def parts_of(read, query, kinds):
    """Return the parts of some kinds of a query; or its error."""
    try:
        found = read(query)
    except QueryError as error:
        return (_error(error),)
    return tuple(part for kind in kinds for part in PARTS[kind](found))


def _error(error):
    kind = "not supported" if isinstance(error, NotSupportedError) else "wrong"
    said, caret = error.message.splitlines()[0], error.message.splitlines()[-1]
    line, column = error.facts["line"], error.facts["column"]
    place = f" (line {line}, column {column})"
    assert said.endswith(place)
    assert caret.index("^") == 1 + column
    return f"{kind} at {column if line == 1 else f'{line}:{column}'}: {said.removesuffix(place)}"


def _inputs(query):
    for each in query.inputs:
        alias = "" if each.name == each.stream else f" AS {each.name}"
        yield f"{each.stream} [{each.window.text}]{alias}"


def _filters(query):
    return (f"filter {each.name}: {one.text}" for each in query.inputs for one in each.predicates)


def _keys(query):
    for each in query.keys:
        members = [f"{name} {', '.join(texts)}" for name, texts in each.members.items()]
        yield f"key {' = '.join(members)}"


def _overs(query):
    for over in query.overs:
        yield f"by {', '.join(over.partition_by)} of {over.time}"
        for each in over.calls:
            yield f"{each.call.column} = {each.call.text} over {each.window.text}"


def _steps(query):
    return [str(each) for each in steps(query) if not isinstance(each, ReadStep)]


def _parts(query):
    return (" ".join(part.projections) for part in query.parts)


def _recipe(query):
    """Yield what segments are made of, and the calls on them, of joins in parentheses."""
    return _calls(query.node)


def _calls(node):
    if isinstance(node, Made):
        model = [*(f"{a} = {b}" for a, b in node.equations), *(f"{a} {b}" for a, b in node.bounds)]
        rows = "".join(f" where {each.text}" for each in node.predicates)
        keys = f" by {', '.join(node.keys)}" if node.keys else ""
        rows += "".join(
            f" joined with {each.name}({', '.join(key for _, key in each.columns)}) "
            f"on {' and '.join(each.conditions)}"
            for each in node.tables
        )
        return [f"{node.stream}: {', '.join([*model, *node.read])}{keys}{rows}"]
    named = [f"{name}={_said(each)}" for name, each in node.named.items()]
    return [*_calls(node.of), f"{node.method}({', '.join([*map(_said, node.arguments), *named])})"]


def _said(given):
    if isinstance(given, Made | Call):
        return f"[{', '.join(_calls(given))}]"
    return f"{given.total_seconds():g} s" if isinstance(given, timedelta) else str(given)


PARTS = {
    "rows": lambda query: (" ".join(query.text.split()),),
    "recipe": _recipe,
    "having rows": lambda query: (f"having {each}" for each in query.having),
    "errors": lambda _: ("it is read",),
    "steps": _steps,
    "groups": lambda query: (f"{name} = {text}" for name, text in query.grouping.groups),
    "calls": lambda query: (f"{each.column} = {each.text}" for each in query.grouping.calls),
    "having": lambda query: (f"having {query.grouping.having}",) * bool(query.grouping.having),
    "overs": _overs,
    "parts": _parts,
    "tree": lambda query: tree(steps(query)),
    "window": lambda query: (query.inputs[0].window.text,),
    "times": lambda query: (
        f"{each.what} of {each.name} at {each.start + 1}" for each in query.times
    ),
    "inputs": _inputs,
    "filters": _filters,
    "keys": _keys,
    "equalities": lambda query: (f"equal {each}" for each in query.equalities),
    "residual": lambda query: (f"residual {each}" for each in query.residual),
    "emits": lambda query: (f"emits {query.emits}",),
    "kind": lambda query: (query.kind, *(f"met {each}" for each in query.conditions)),
    "output": lambda query: query.projections,
}
