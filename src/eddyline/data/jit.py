"""Kernels: functions that numba compiles when they are first called.

Importing numba takes longer than the rest of eddyline, so nothing does before the first kernel is
called: modules of kernels can be imported anywhere. The machine code is kept for later processes.

Workers of Spark often need a new kernel at the same instant. One of them compiles it, and the
others wait and load the result. Without a lock all of them would compile. A worker could even load
machine code of an older version, because numba writes the index before the code.
"""

from __future__ import annotations

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
        _take_no_literals(made)
        function.__globals__[function.__name__] = made  # it may call itself
        return made

    def _resolved(self) -> FunctionType:
        """Return the function with globals in which other kernels are what numba can call."""
        made = cast("FunctionType", self._function)
        names = {**made.__globals__}
        for name in made.__code__.co_names:
            other = names.get(name)
            if isinstance(other, Kernel) and other is not self:
                names[name] = other.dispatcher
        return FunctionType(made.__code__, names, made.__name__, made.__defaults__)


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
