"""JSON of values whose texts may be anything, such as names of files in another encoding."""

from __future__ import annotations

from typing import Any

import msgspec


def encoded(value: Any) -> bytes:
    """Return a value as JSON; what JSON does not know becomes a text, see ``writable``."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=str, str_keys=True)
        return msgspec.json.encode(_writable(plain))


def writable(text: str) -> str:
    r"""Return a text that can be written: halves of characters become question marks.

    >>> writable("caf\udce9.yml")
    'caf?.yml'
    """
    return text.encode("utf-8", "replace").decode()


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, dict):
        return {writable(name): _writable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(each) for each in value]
    return value
