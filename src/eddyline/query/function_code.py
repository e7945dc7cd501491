"""A hash of the code of a Python function, to find out whether the function has changed.

The hash covers bytecode, constants, names, defaults and plain values. It also covers the functions
that the code encloses or calls by a global name. It does not cover file names, line numbers and
docstrings.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import msgspec

_PLAIN = bool, int, float, complex, str, bytes, type(None), type(...)

_EMPTY = {"EXTENDED_ARG", "CACHE", "RESUME", "NOP"}
"""Instructions without a meaning of their own."""

_OF_PLACE = {"__doc__", "__module__", "__qualname__", "__firstlineno__"}
"""Attributes of a class that tell its place, not its behaviour."""


class FunctionCode(msgspec.Struct, frozen=True):
    """The hash of a function's code; those of two versions of Python cannot be compared."""

    digest: str
    python: str
    """Version of Python, such as ``3.12``: bytecode differs from version to version."""

    def differs(self, other: FunctionCode) -> bool:
        """Return whether the functions certainly differ."""
        return self.python == other.python and self.digest != other.digest


def code_of(function: Any) -> FunctionCode:
    """Return the code of a function, of an object that is called, or of an aggregate's methods.

    >>> code_of(lambda v: v > 1).differs(code_of(lambda v: v > 2))
    True
    """
    said = repr(_Walk().said(function))
    digest = hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return FunctionCode(digest, f"{sys.version_info.major}.{sys.version_info.minor}")


class _Walk:
    """Describes values by plain values that are the same in every process."""

    def __init__(self) -> None:
        self._said: dict[int, Any] = {}
        """Descriptions of functions, classes and objects, by id; None while one is made."""

    def said(self, value: Any) -> Any:  # noqa: PLR0911 - a case for each kind of value
        if isinstance(value, _PLAIN):
            return type(value).__name__, repr(value)
        if isinstance(value, list | tuple):
            return type(value).__name__, [self.said(each) for each in value]
        if isinstance(value, set | frozenset):
            return "set", sorted(repr(self.said(each)) for each in value)
        if isinstance(value, dict):
            items = [(self.said(key), self.said(each)) for key, each in value.items()]
            return "dict", sorted(items, key=repr)
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, BuiltinFunctionType | ModuleType):
            return "named", getattr(value, "__module__", None), value.__name__
        if id(value) not in self._said:
            self._said[id(value)] = None  # one that calls itself ends here
            said = repr(self._made(value)).encode("utf-8", "surrogatepass")
            self._said[id(value)] = hashlib.blake2b(said, digest_size=8).hexdigest()
        return self._said[id(value)]

    def _made(self, value: Any) -> Any:
        if isinstance(value, functools.partial):
            return "partial", self.said([value.func, value.args, value.keywords])
        if isinstance(value, MethodType):
            return "method", self.said(value.__func__), self.said(value.__self__)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return "type", value.__qualname__, self._methods(value)
        return self._object(value)

    def _function(self, value: FunctionType) -> Any:
        cells = []
        for cell in value.__closure__ or ():
            try:
                cells.append(self.said(cell.cell_contents))
            except ValueError:  # it is not filled yet
                cells.append("empty")
        known = {
            name: self.said(value.__globals__[name])
            for name in _names(value.__code__)
            if name in value.__globals__ and _counts(value.__globals__[name])
        }
        defaults = self.said([value.__defaults__, value.__kwdefaults__])
        return "function", self._code(value.__code__), defaults, cells, known

    def _code(self, code: CodeType) -> Any:
        sizes = code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags
        return sizes, [
            (each.opname, self._argument(each))
            for each in dis.get_instructions(code)
            if each.opname not in _EMPTY
        ]

    def _argument(self, instruction: dis.Instruction) -> Any:
        if instruction.opcode in dis.hasconst:
            return self.said(instruction.argval)
        return instruction.argval if instruction.opcode in dis.hasname else instruction.arg

    def _methods(self, value: type) -> list[Any]:
        if _is_installed(value.__module__):
            return [value.__module__]
        kinds = (FunctionType, staticmethod, classmethod, *_PLAIN)
        return [
            (name, self.said(getattr(each, "__func__", each)))
            for name, each in sorted(vars(value).items())
            if isinstance(each, kinds) and name not in _OF_PLACE
        ]

    def _object(self, value: Any) -> Any:
        kind = type(value)
        inner = getattr(value, "py_func", None) or getattr(value, "__wrapped__", None)
        if inner is not None:  # as of numba and functools.cache
            return "wrapped", kind.__qualname__, self.said(inner)
        if hasattr(value, "tobytes") and hasattr(value, "dtype"):  # an array
            return "array", str(value.dtype), hashlib.blake2b(value.tobytes()).hexdigest()
        if _is_installed(kind.__module__):
            return "object", kind.__module__, kind.__qualname__
        plain = sorted(getattr(value, "__dict__", {}).items())
        return "object", kind.__qualname__, self._methods(kind), self.said(plain)


def _names(code: CodeType) -> list[str]:
    """Return the global names that code and what it encloses may read."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return sorted({*code.co_names, *(name for each in inner for name in _names(each))})


def _counts(value: Any) -> bool:
    """Return whether a global value is part of a function's code; packages are not."""
    if isinstance(value, FunctionType | type):
        return not _is_installed(value.__module__)
    return isinstance(value, (*_PLAIN, list, tuple, set, frozenset, dict, functools.partial))


def _is_installed(module: str | None) -> bool:
    """Return whether a module is one of Python's or of an installed package."""
    stem = (module or "").partition(".")[0]
    file = str(getattr(sys.modules.get(stem), "__file__", "") or "")
    is_known = stem in {*sys.stdlib_module_names, "eddyline"} - {"__main__"}
    return is_known or "site-packages" in file
