"""Packages that only an extra installs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from eddyline.errors import PluginError


def package(name: str, needs: tuple[str, str]) -> Any:
    """Return an optional package.

    Args:
        name: of the package or of a module in it.
        needs: what needs it, and the extra that has it.

    Raises:
        PluginError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        needed, (what, extra) = name.partition(".")[0], needs
        msg = f"{what} needs the package {needed}; install it with: pip install 'eddyline[{extra}]'"
        raise PluginError(msg, package=needed) from error
