"""Parser of Spark SQL text.

sqlglot gives trees and tokens. Errors point into the text. Text that runs on Spark stays the user's
own text; trees are only looked at. The dialect differs from sqlglot's Spark in two ways: every
function keeps the name it is written with (what is known of functions is in ``sql.functions``), and
CAST may raise, as it does in ANSI mode.

The parser and the functions over its trees are recursive. The parser takes some 20 frames per
parenthesis, and Python's limit is 1,000. Work that does not fit runs again in a thread with a
larger stack (``deep``). All threads share one limit, so it is raised only while that thread runs.
"""

from __future__ import annotations

import contextvars
import functools
import re
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from eddyline.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlglot import Expr, Token

# -- depth -----------------------------------------------------------------------------------------

P = ParamSpec("P")
T = TypeVar("T")

MAX_LEVELS = 1_000
"""Most levels of a text. Spark reads 300 to 700 on its default stack of 1 MB."""

_FRAMES = (8_000, 60_000)
"""Python's limits of frames in the deep thread, tried in this order; 60,000 read ``MAX_LEVELS``."""
_STACK_BYTES = 512 << 20
"""Stack of the deep thread; pages that nobody touches take no memory."""

_OPENS = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE}
_CLOSES = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.TILDE}

_lock = threading.Lock()
_here = threading.local()


def deep(function: Callable[P, T]) -> Callable[P, T]:
    """Run a function without side effects again on a larger stack if the stack is too small."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if getattr(_here, "is_deep", False):
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if not _is_too_deep(error):
                raise
        for frames in _FRAMES:
            try:
                return _run(frames, function, *args, **kwargs)
            except Exception as error:
                if not _is_too_deep(error):
                    raise
        msg = (
            "an expression has too many operators in a row to be read; put parentheses around parts"
        )
        raise QueryError(msg)

    return run


def _is_too_deep(error: BaseException | None) -> bool:
    """Return whether the stack caused an error; sqlglot's tokenizer wraps such errors."""
    while error is not None and not isinstance(error, RecursionError):
        error = error.__cause__ or error.__context__
    return error is not None


def _run(frames: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a thread that may have so many frames."""
    context = contextvars.copy_context()
    result: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        _here.is_deep = True
        try:
            result.append(context.run(function, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            errors.append(error)

    with _lock:
        before, size = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
        sys.setrecursionlimit(max(before, frames))
        try:
            thread = threading.Thread(target=work, name="eddyline-deep")
            thread.start()
            thread.join()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(before)
    if errors:
        raise errors[0]
    return result[0]


def depth_of(value: T, parts: Callable[[T], Iterable[T]]) -> int:
    """Return how many levels a tree has; ``parts`` returns the values directly inside one."""
    levels, waiting = 0, [value]
    while waiting:
        levels += 1
        waiting = [part for node in waiting for part in parts(node)]
    return levels


def levels_of(tokens: Iterable[Token]) -> tuple[int, Token | None]:
    """Return how deeply the tokens are nested, and the first token that is nested so deeply.

    A parenthesis, a bracket, CASE and each of several NOTs in a row are a level.
    """
    depth = deepest = prefixes = 0
    place = None
    for token in tokens:
        kind = token.token_type
        if kind in _PREFIXES:
            prefixes += 1
        else:
            prefixes = 0
            if kind in _OPENS:
                depth += 1
            elif kind in _CLOSES:
                depth = max(depth - 1, 0)
        if depth + prefixes > deepest:
            deepest, place = depth + prefixes, token
    return deepest, place


# -- trees and tokens ------------------------------------------------------------------------------

_KEPT_PARSERS = ("CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")
"""Functions with a grammar of their own: SUBSTRING(s FROM 1 FOR 2)."""

_CLOSED = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:``|[^`])*`|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
_CLOSED_OR_BLANK = re.compile(rf"({_CLOSED.pattern})|\s+", re.DOTALL)
_OPENING = re.compile(r"""['"`]|/\*|--""")


class SparkText(Spark):
    """Spark SQL as it is written: no function is translated, and CAST may raise."""

    class Tokenizer(Spark.Tokenizer):
        """Without words that swallow the rest of the text: a column may be called ``show``."""

        COMMANDS: ClassVar[set[TokenType]] = set()

    class Parser(Spark.Parser):  # type: ignore[valid-type,misc]  # which class it is, varies
        """See the dialect."""

        STRICT_CAST: ClassVar[bool] = True
        NO_PAREN_IF_COMMANDS: ClassVar[bool] = False  # IF begins no statement
        # ARRAY stays typed: sqlglot loses the arguments of an untyped ARRAY(…)[i].
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            "ARRAY": exp.Array.from_arg_list,
            "LIST": exp.List.from_arg_list,
        }
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: Spark.Parser.FUNCTION_PARSERS[name] for name in _KEPT_PARSERS
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: Spark.Parser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("ANY", "CASE", "IF")
        }

        def _parse_types(self, *args: Any, **how: Any) -> Any:  # STRING COLLATE name
            kind = super()._parse_types(*args, **how)
            collation = kind.args.get("collate") if isinstance(kind, exp.DataType) else None
            if isinstance(collation, exp.Column):  # it is no column of the input
                kind.set("collate", exp.var(".".join(name.name for name in collation.parts)))
            return kind


def tokens_of(text: str, what: str = "SQL") -> list[Token]:
    """Return the tokens of a text; ``start`` and ``end`` (inclusive) are offsets into it.

    Raises:
        QueryError: a quote or comment is left open.
    """
    try:
        return SparkText().tokenize(text)
    except TokenError as error:
        message = f"{what} has a quote or a comment that is left open"
        offset = _first_open(text)
        raise QueryError(at(message, text, offset), **place(text, offset)) from error


KEPT_TREES, KEPT_LENGTH = 512, 1_000
"""Trees that are kept for texts that are read again, and the longest text whose tree is kept.
A tree takes some 160 bytes per character. A query has a few dozen texts."""


@deep
def parse_condition(text: str, what: str = "SQL") -> Expr:
    """Return the tree of an expression.

    A text is read once: all who ask for its tree share it, so a tree is copied before it is
    changed.

    Raises:
        QueryError: it is not an expression; the message shows where.
    """
    with suppress(QueryError):
        tree = _tree_of(text)
        if not isinstance(tree, exp.Alias | exp.Aliases):
            return tree
    return _read(text, what, exp.Condition)


@deep
def parse_column(text: str) -> Expr:
    """Return the tree of a column of SELECT, with its alias; see ``parse_condition``."""
    return _tree_of(text)


def parse_output(text: str) -> Expr:
    """Return the tree of a column of SELECT, without its alias; see ``parse_condition``."""
    column: Expr = parse_column(text).unalias()
    return column


def plain_path(text: str) -> tuple[str, ...] | None:
    """Return the column, or the field of a column, that an output column is; None if it is another.

    >>> plain_path("(a.x) AS y"), plain_path("`my col`"), plain_path("window.end")
    (('a', 'x'), ('my col',), ('window', 'end'))
    >>> plain_path("now()"), plain_path("a + 1 AS b"), plain_path("'a'"), plain_path("true")
    (None, None, None, None)
    """
    with suppress(QueryError):
        tree = parse_output(text).unnest()
        if isinstance(tree, exp.Column) and not tree.is_star and len(tree.parts) <= 2:
            return tuple(part.name for part in tree.parts)
    return None


def _tree_of(text: str) -> Expr:
    return (_kept_tree if len(text) <= KEPT_LENGTH else _read)(text)


def _read(text: str, what: str = "SQL", kind: type[Expr] = exp.Expr) -> Expr:
    """Read an expression, with an alias unless ``kind`` is ``exp.Condition``."""
    tokens = tokens_of(text, what)
    if not tokens:
        msg = f"{what} is empty"
        raise QueryError(msg)
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            refuse(f"{what} is one expression, without a semicolon", text, token.start)
    if kind is exp.Expr and tokens[-1].token_type == TokenType.ALIAS:  # sqlglot takes (v AS)
        refuse(f"{what} needs a name behind AS", text, tokens[-1].start)
    tree = parsed(tokens, text, what, functools.partial(SparkText().parser().parse_into, kind))
    if tree is None:
        refuse(f"{what} is not an expression", text, tokens[0].start)
    return tree


_kept_tree = functools.lru_cache(maxsize=KEPT_TREES)(_read)


def parsed(
    tokens: list[Token],
    text: str,
    what: str,
    parse: Callable[[list[Token], str], list[Expr | None]],
) -> Expr | None:
    """Return the first tree that a method of a parser makes of the tokens of a text.

    Raises:
        QueryError: they are nested too deeply, or cannot be parsed; the message shows where.
    """
    levels, token = levels_of(tokens)
    if levels > MAX_LEVELS and token is not None:
        message = (
            f"{what} is nested {levels} levels deep, and at most {MAX_LEVELS} can be read; "
            f"write it flatter, or split it"
        )
        refuse(message, text, token.start, levels=levels, most=MAX_LEVELS)
    try:
        return parse(tokens, text)[0]
    except ParseError as error:
        raise _syntax_error(error, text, what) from error


def _syntax_error(error: ParseError, text: str, what: str) -> QueryError:
    """Return the error of a text that cannot be parsed, pointing at the place."""
    details = error.errors[0] if error.errors else {}
    if "line" not in details:
        return QueryError(f"{what} cannot be read as SQL: {error}\n{text}", text=text)
    marked = details.get("highlight") or ""
    line_start = sum(len(line) + 1 for line in text.split("\n")[: details["line"] - 1])
    offset = line_start + max(0, details["col"] - max(1, len(marked.rpartition("\n")[2])))
    description = str(details["description"]).partition(" but got <Token")[0]
    if description.startswith("Required keyword"):
        description = "an operand is missing"
    message = f"{what} cannot be read as SQL: {description} near {marked!r}"
    return QueryError(at(message, text, offset), **place(text, offset))


def refuse(
    message: str, text: str, offset: int, kind: type[QueryError] = QueryError, **facts: Any
) -> NoReturn:
    """Raise an error that points at an offset of the text."""
    raise kind(at(message, text, offset), **{**place(text, offset), **facts})


def place(text: str, offset: int) -> dict[str, int]:
    r"""Return line and column (from 1) of an offset.

    >>> place("a\n  > 3", 4)
    {'line': 2, 'column': 3}
    """
    before = text[:offset]
    return {"line": before.count("\n") + 1, "column": offset - before.rfind("\n")}


def at(message: str, text: str, offset: int) -> str:
    """Return the message with its place, the line of the text and a caret below it.

    >>> print(at("unknown column 'b'", "a > 1 AND b", 10))
    unknown column 'b' (line 1, column 11)
      a > 1 AND b
                ^
    """
    where = place(text, offset)
    line = text.split("\n")[where["line"] - 1]
    # Tabs stay tabs, so that the caret stands below its character.
    lead = re.sub(r"[^\t]", " ", line[: where["column"] - 1])
    head = f"{message} (line {where['line']}, column {where['column']})"
    return f"{head}\n  {line}\n  {lead}^"


PLACE = "place"
"""Key of ``meta`` of a node whose parts stand elsewhere in the text: its own offset."""


def offset_of(node: Expr) -> int:
    """Return the offset of the first token below a node that knows its own (0 if none does)."""
    places = (below.meta for below in node.walk(prune=lambda below: PLACE in below.meta))
    starts = (meta.get(PLACE, meta.get("start")) for meta in places)
    return min((start for start in starts if start is not None), default=0)


def slice_of(text: str, tokens: Sequence[Token]) -> str:
    """Return the source text from the first of the tokens to the last."""
    return text[tokens[0].start : tokens[-1].end + 1]


def quoted(name: str) -> str:
    """Return an identifier in backticks.

    >>> quoted("odd`name")
    '`odd``name`'
    """
    return "`" + name.replace("`", "``") + "`"


def on_one_line(text: str) -> str:
    r"""Return a text with each stretch of white space as one blank, but in quotes and comments.

    >>> on_one_line("a  =\n 'b  c'")
    "a = 'b  c'"
    """
    return _CLOSED_OR_BLANK.sub(lambda match: match[1] or " ", text).strip()


@functools.lru_cache(maxsize=KEPT_TREES)
def comparable(text: str) -> tuple[str, ...]:
    """Return the words of an expression: equal if two say the same but for blanks and case.

    >>> comparable("F( a,'X')") == comparable("f(a, 'X') -- twice"), comparable("'x'")
    (True, ("STRING'x",))
    """
    return tuple(
        f"{kind}'{token.text}" if kind.endswith("STRING") else token.text.lower()
        for token in tokens_of(text)
        for kind in [token.token_type.name]  # R'…' is a RAW_STRING
    )


def _first_open(text: str) -> int:
    """Return the offset of the quote or comment that nothing closes."""
    position = 0
    while match := re.search(
        f"{_CLOSED.pattern}|(?P<open>{_OPENING.pattern})", text[position:], re.S
    ):
        if match["open"]:
            return position + match.start()
        position += match.end()
    return max(0, len(text) - 1)
