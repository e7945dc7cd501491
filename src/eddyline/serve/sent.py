"""What a browser sends with a form."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from starlette.requests import Request


async def fields_of(request: Request, most_bytes: int) -> dict[str, str] | None:
    """Return the fields of a form, of each its first value; None if more was sent than allowed."""
    if int(request.headers.get("content-length") or most_bytes) >= most_bytes:
        return None
    found = parse_qs((await request.body()).decode("utf-8", "replace"))
    return {name: values[0] for name, values in found.items()}
