"""Deeply nested text: its levels, and a larger stack for its readers.

The parser and the functions over its trees are recursive. The parser takes some 20 frames per
parenthesis, and Python's limit is 1,000. Work that does not fit runs again in a thread with a
larger stack. All threads share one limit, so ``deep`` raises it only while that thread runs.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from sqlglot import TokenType

from eddyline.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlglot import Token

P = ParamSpec("P")
T = TypeVar("T")

MAX_LEVELS = 1_000
"""Most levels of a text. Spark reads 300 to 700 on its default stack of 1 MB."""

_FRAMES = (8_000, 60_000)
_STACK_BYTES = 512 << 20  # pages that nobody touches take no memory

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
        waiting = [part for each in waiting for part in parts(each)]
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
