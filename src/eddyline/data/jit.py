"""Kernels compiled by numba; only modules of kernels import this, and only what runs them those.

Importing numba takes longer than the rest of eddyline, so nothing does before the first detector or
set of rules that needs it is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile a function on its first call; the machine code is kept for later processes."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return cast("F", numba.njit(cache=True, **options)(function))
    except RuntimeError:  # neither the package nor a home is a place to write to
        return cast("F", numba.njit(**options)(function))
