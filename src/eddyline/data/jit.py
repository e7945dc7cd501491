"""Kernels: functions that numba compiles when they are first called.

Importing numba takes longer than the rest of eddyline, so nothing does before the first kernel is
called: modules of kernels can be imported anywhere. The machine code is kept for later processes.

Workers of Spark often need a new kernel at the same instant. One of them compiles it, and the
others wait and load the result. Without a lock all of them would compile. A worker could even load
machine code of an older version, because numba writes the index before the code.

Arrays that Arrow owns are read-only and others are not. numba would compile a kernel for each mix
of the two. A kernel that only reads an array is compiled once, for a read-only one.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    import fcntl
except ImportError:  # Windows has no flock: processes compile beside one another there
    fcntl = None  # type: ignore[assignment]

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(Generic[P, R]):
    """A function on arrays and numbers; it may call other kernels by their global names."""

    def __init__(self, function: Callable[P, R], *, is_inlined: bool = False) -> None:
        self._function, self._is_inlined = function, is_inlined
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the compiled function; the first call of a process compiles or loads it."""
        found: R = self.dispatcher(*args, **kwargs)
        return found

    @cached_property
    def dispatcher(self) -> Any:
        """The function in the form in which numba calls it, from Python and from other kernels."""
        import numba  # noqa: PLC0415 - see above

        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        if self._is_inlined:
            options["forceinline"] = True
        function = self._resolved()
        try:
            made = numba.njit(cache=True, **options)(function)
            _compile_in_turn(made)
        except RuntimeError:  # neither the package nor a home is a place to write to
            made = numba.njit(**options)(function)
        _compile_once_for_arrays(made, self)
        _take_no_literals(made)
        function.__globals__[function.__name__] = made  # it may call itself
        return made

    @cached_property
    def only_read(self) -> list[bool]:
        """Whether the function only reads each parameter, as far as its text shows.

        It may index it, ask for its length or shape, iterate over it, and hand it to kernels that
        only read it. Anything else, such as a second name, may lead to a write.
        """
        self.only_read = [True] * self._function.__code__.co_argcount  # what it calls may call it
        try:
            text = textwrap.dedent(inspect.getsource(self._function))
        except OSError:  # no source: as if it wrote to all
            return [False] * self._function.__code__.co_argcount
        kernels = {
            name: value
            for name, value in self._function.__globals__.items()
            if isinstance(value, Kernel)
        }
        tree = ast.parse(text)
        read = [name for node in ast.walk(tree) for name in _names_read(node, kernels)]
        names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
        return [
            names.count(argument.arg) == read.count(argument.arg)
            for argument in tree.body[0].args.args  # type: ignore[attr-defined]
        ]

    def _resolved(self) -> FunctionType:
        """Return the function with globals in which other kernels are what numba can call."""
        made = cast("FunctionType", self._function)
        names = {**made.__globals__}
        for name in made.__code__.co_names:
            other = names.get(name)
            if isinstance(other, Kernel) and other is not self:
                names[name] = other.dispatcher
        return FunctionType(made.__code__, names, made.__name__, made.__defaults__)


def _names_read(node: ast.AST, kernels: dict[str, Kernel[..., Any]]) -> list[str]:
    """Return the names that a node of a function's text reads, and hands on to nobody."""
    match node:
        case ast.Subscript(value=ast.Name(name), ctx=ast.Load()):
            return [name]
        case ast.Attribute(value=ast.Name(name), attr="shape" | "size"):
            return [name]
        case ast.For(iter=ast.Name(name)) | ast.comprehension(iter=ast.Name(name)):
            return [name]
        case ast.Call(func=ast.Name("len"), args=[ast.Name(name)]):
            return [name]
        case ast.Call(func=ast.Name(called), args=arguments) if called in kernels:
            return [
                argument.id
                for argument, is_read in zip(arguments, kernels[called].only_read, strict=False)
                if is_read and isinstance(argument, ast.Name)
            ]
    return []


def _compile_once_for_arrays(dispatcher: Any, kernel: Kernel[..., Any]) -> None:
    """Let machine code for a read-only array take any array where the kernel only reads it."""
    from numba.core.errors import TypingError  # noqa: PLC0415 - see above
    from numba.core.types import Array  # noqa: PLC0415 - see above

    compile_exactly = dispatcher.compile
    compiled_for: dict[tuple[Any, ...], Any] = {}

    def compile_for(signature: tuple[Any, ...]) -> Any:
        wanted = tuple(signature)
        if wanted in compiled_for:
            return compiled_for[wanted]
        general = tuple(
            kind.copy(readonly=True) if is_read and isinstance(kind, Array) else kind
            for kind, is_read in zip(wanted, kernel.only_read, strict=False)
        )
        general += wanted[len(general) :]
        try:
            code = compile_exactly(general)
        except TypingError:  # it writes to a part of an array: a row of it, say
            general, code = wanted, compile_exactly(wanted)
        if general != wanted:
            dispatcher._insert([kind._code for kind in wanted], code, False)
        compiled_for[wanted] = code
        return code

    dispatcher.compile = compile_for


def _take_no_literals(dispatcher: Any) -> None:
    """Let a kernel that calls this one with a constant call what takes any number.

    numba compiles a function once for ``f(0)`` and once for ``f(n)``, each with all that it calls;
    of ``n = 0`` before a loop it makes both.
    """
    from numba.core.types import unliteral  # noqa: PLC0415 - see above

    find = dispatcher.get_call_template

    def found(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        named = dict(zip(kws, map(unliteral, kws.values()), strict=True))
        return find(tuple(map(unliteral, args)), named)

    dispatcher.get_call_template = found


def _compile_in_turn(dispatcher: Any) -> None:
    """Let one process at a time look for the machine code of a kernel, compile and save it.

    A kernel's lock is held while the kernels that it calls are compiled. No two kernels call each
    other, so processes cannot wait for each other. Threads take numba's lock first.
    """
    from numba.core.compiler_lock import global_compiler_lock  # noqa: PLC0415 - see above

    compile_alone = dispatcher.compile
    try:
        name = f"{dispatcher._cache._impl.filename_base}.nbl"
        path = Path(dispatcher._cache.cache_path, name)
    except AttributeError:  # a numba that names its files otherwise: each process compiles
        return
    is_held = False

    def compile_in_turn(signature: Any) -> Any:
        nonlocal is_held
        with global_compiler_lock, ExitStack() as stack:
            if is_held or fcntl is None:  # held: the kernel calls itself
                return compile_alone(signature)
            with suppress(OSError):  # a folder that is read-only, or has no locks
                lock = stack.enter_context(path.open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            is_held = True
            try:
                return compile_alone(signature)
            finally:
                is_held = False

    dispatcher.compile = compile_in_turn


def compiled(function: Callable[P, R]) -> Kernel[P, R]:
    """Return a function of a module as a kernel, compiled on its first call."""
    return Kernel(function)


def inlined(function: Callable[P, R]) -> Kernel[P, R]:
    """Return the same for a part of a loop: machine code of kernels that call it has it in place.

    Handing over many arrays takes longer than what little is done with them.
    """
    return Kernel(function, is_inlined=True)


def load() -> None:
    """Import numba now, and what it knows of Python and machine, so that no first call need to."""
    from numba.core.registry import cpu_target  # noqa: PLC0415 - see above

    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
