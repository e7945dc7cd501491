"""Kernels: functions that numba compiles when they are first called.

Importing numba takes longer than the rest of eddyline, so nothing does before the first kernel is
called: modules of kernels can be imported anywhere. The machine code is kept for later processes.

Workers of Spark often need a new kernel at the same instant. One of them compiles it, and the
others wait and load the result. Without a lock all of them would compile. A worker could even load
machine code of an older version, because numba writes the index before the code.

Arrays that Arrow owns are read-only, and others are not. numba would compile a kernel for each
combination. Parameters that a kernel only reads are compiled as read-only arrays, and that code
serves writable arrays, too.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import threading
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

try:
    import fcntl
except ImportError:  # Windows has no flock: processes compile beside one another there
    fcntl = None  # type: ignore[assignment]

_importing = threading.Lock()
_loaded: Any = None
"""numba, once it is imported whole."""


def _numba() -> Any:
    """Return numba; a thread waits for another one that is importing it.

    Its modules import each other in circles. Python lets threads that import at once pass each
    other there, and a thread would see half a module. The contexts of the compiler are made here,
    too. numba guards them with a lock of their own, and takes that of the compiler inside. A thread
    that took the two in the other order would wait for ever.
    """
    global _loaded  # noqa: PLW0603
    if _loaded is None:
        with _importing:
            import numba  # noqa: PLC0415 - see above
            from numba.core.registry import cpu_target  # noqa: PLC0415

            for context in ("typing_context", "target_context"):
                getattr(cpu_target, context)
            _loaded = numba
    return _loaded


P = ParamSpec("P")
R = TypeVar("R")


class Kernel(Generic[P, R]):
    """A function on arrays and numbers; it may call other kernels by their global names."""

    def __init__(self, function: Callable[P, R], *, is_inlined: bool = False) -> None:
        self._function, self._is_inlined = function, is_inlined
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the compiled function; the first call of a process compiles or loads it."""
        result: R = self.dispatcher(*args, **kwargs)
        return result

    @cached_property
    def dispatcher(self) -> Any:
        """The function in the form in which numba calls it, from Python and from other kernels."""
        numba = _numba()
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        if self._is_inlined:
            options["forceinline"] = True
        function = self._resolved()
        try:
            jitted = numba.njit(cache=True, **options)(function)
            _compile_in_turn(jitted)
        except RuntimeError:  # neither the package nor a home is a place to write to
            jitted = numba.njit(**options)(function)
        _compile_once_for_arrays(jitted, self)
        _take_no_literals(jitted)
        function.__globals__[function.__name__] = jitted  # it may call itself
        return jitted

    @cached_property
    def only_read(self) -> list[bool]:
        """Flags of the parameters that the source only reads ((P,)); False where unknown."""
        code = self._function.__code__
        unknown = [False] * code.co_argcount
        if code.co_name in code.co_names:  # numba's cache has one signature of what calls itself
            return unknown
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(self._function)))
        except (OSError, SyntaxError):  # no source, or a part of a larger expression
            return unknown
        if not isinstance(tree.body[0], ast.FunctionDef):
            return unknown
        names = self._function.__globals__
        kernels = {name: value for name, value in names.items() if isinstance(value, Kernel)}
        written = _written(tree, kernels)
        return [name not in written for name in code.co_varnames[: code.co_argcount]]

    def _resolved(self) -> FunctionType:
        """Return the function with globals in which other kernels are what numba can call."""
        function = cast("FunctionType", self._function)
        names = {**function.__globals__}
        for name in function.__code__.co_names:
            other = names.get(name)
            if isinstance(other, Kernel) and other is not self:
                names[name] = other.dispatcher
        return FunctionType(function.__code__, names, function.__name__, function.__defaults__)


def _shared(value: ast.AST | None) -> set[str]:  # noqa: PLR0911 - a case for each form
    """Return the names of arrays of which a value may be a view."""
    match value:
        case ast.Name(name):
            return {name}
        case ast.Attribute(attr="shape" | "size" | "copy"):
            return set()
        case ast.Subscript(value=whole) | ast.Attribute(value=whole) | ast.Starred(value=whole):
            return _shared(whole)
        case ast.Call(func=ast.Attribute() as method):  # of an array, or of a module
            return _shared(method)
        case ast.Tuple(parts) | ast.List(parts):
            return {name for part in parts for name in _shared(part)}
        case ast.IfExp(body=first, orelse=second):
            return _shared(first) | _shared(second)
    return set()


def _bound(target: ast.AST) -> set[str]:
    """Return the names that an assignment binds; storing into an array copies."""
    match target:
        case ast.Name(name):
            return {name}
        case ast.Tuple(parts):
            return {name for part in parts for name in _bound(part)}
    return set()


def _written(  # noqa: C901, PLR0912 - a case for each form
    tree: ast.AST, kernels: dict[str, Kernel[..., Any]]
) -> set[str]:
    """Return the names through which a function may write to an array."""
    written: set[str] = set()
    added_to: set[str] = set()  # mostly numbers, so what they were set to is not looked for
    shares: list[tuple[set[str], set[str]]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=whole, ctx=ast.Store() | ast.Del()):
                written |= _shared(whole)
            case ast.Attribute(value=whole, ctx=ast.Store()):
                written |= _shared(whole)
            case ast.AugAssign(target=ast.Name(name)):
                added_to.add(name)
            case ast.Call(func=ast.Attribute(value=whole, attr="sort" | "fill" | "partition")):
                written |= _shared(whole)
            case ast.Call(func=ast.Name(called), args=values, keywords=named) if called in kernels:
                for value, is_read in zip(values, kernels[called].only_read, strict=False):
                    if not is_read:
                        written |= _shared(value)
                for keyword in named:
                    written |= _shared(keyword.value)
            case ast.Assign(targets=targets, value=value):
                shares += [(_bound(target), _shared(value)) for target in targets]
            case ast.AnnAssign(target=target, value=value) | ast.NamedExpr(target, value):
                shares.append((_bound(target), _shared(value)))
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                shares.append((_bound(target), _shared(value)))
    n_before = -1
    while n_before != len(written):
        n_before = len(written)
        for bound, sources in shares:
            if not written.isdisjoint(bound):
                written |= sources
    return written | added_to


def _compile_once_for_arrays(dispatcher: Any, kernel: Kernel[..., Any]) -> None:
    """Let machine code for a read-only array take any array where the kernel only reads it."""
    from numba.core.compiler_lock import global_compiler_lock  # noqa: PLC0415 - see above
    from numba.core.types import Array, BaseTuple  # noqa: PLC0415 - see above

    compile_exactly = dispatcher.compile
    compiled_for: dict[tuple[Any, ...], Any] = {}

    def is_read_only(kind: Any) -> bool:
        if isinstance(kind, BaseTuple):
            return any(is_read_only(part) for part in getattr(kind, "types", ()))
        return isinstance(kind, Array) and not kind.mutable

    def compile_for(signature: tuple[Any, ...]) -> Any:
        wanted = tuple(signature)
        with global_compiler_lock, _filters_of_warnings_kept():
            if wanted not in compiled_for:
                compiled_for[wanted] = code_for(wanted)
            return compiled_for[wanted]

    def code_for(wanted: tuple[Any, ...]) -> Any:
        general = tuple(
            kind.copy(readonly=True) if is_read and isinstance(kind, Array) else kind
            for kind, is_read in zip(wanted, kernel.only_read, strict=False)
        )
        general += wanted[len(general) :]
        if general == wanted:
            return compile_exactly(wanted)
        try:
            code = compile_exactly(general)
        except Exception:  # noqa: BLE001 - it writes through a view that the source does not show
            return compile_exactly(wanted)
        if is_read_only(dispatcher.overloads[general].signature.return_type):
            return compile_exactly(wanted)  # what it returns may be written to
        dispatcher._insert([kind._code for kind in wanted], code, False)
        return code

    dispatcher.compile = compile_for


@contextmanager
def _filters_of_warnings_kept() -> Iterator[None]:
    """Keep numba from setting filters of warnings while it infers types; its lock is held.

    The filters are those of the whole process. A thread that compiles would swallow what other
    threads warn of, or undo the filters that those have set.
    """
    from numba.core import errors  # noqa: PLC0415 - see above

    fixer: Any = errors.WarningsFixer  # type: ignore[attr-defined] # not in the stubs
    before = fixer.catch_warnings
    fixer.catch_warnings = lambda *_, **__: nullcontext()
    try:
        yield
    finally:
        fixer.catch_warnings = before


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
    core = _numba().core
    with core.compiler_lock.global_compiler_lock:  # compiling threads refresh them, too
        core.registry.cpu_target.typing_context.refresh()
        core.registry.cpu_target.target_context.refresh()
