"""Models: polynomials of time that stand for runs of rows, and queries that are solved on them.

``segments`` is what everything here takes and gives. ``fitting`` makes them of rows, within the
``bounds`` of attributes. ``conditions`` are solved on them (``solving``), pairs are made of them
(``joins``), least and greatest values (``extrema``), sums and averages over windows (``windows``),
rows at ticks (``sampling``); ``updates`` says what later ones leave of them. ``streaming`` says
when results of streams are given, ``bucket`` gives them in ``stages``, ``early`` before they are
final, and ``revisions`` says what is taken back then. ``precision`` takes bounds of outputs back to
inputs (``inversion``, ``splits``), ``door`` drops rows that declared models predict, and ``exact``
says which rows have to be read for the answer without models.
``polynomials``, ``timeline`` and ``tolerances`` have the arithmetic; ``sql/`` reads queries with
MODEL. Imports what stands above ``models/`` and no operator.
"""

from importlib import import_module
from typing import Any

_ON_USE = {
    **dict.fromkeys(["declare", "fit", "read"], "eddyline.spark.models.fitting"),
    "latest": "eddyline.spark.models.early",
}
"""The public face, which needs pyspark: imported when it is first used."""

__all__ = ["declare", "fit", "latest", "read"]


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        msg = f"module 'eddyline.models' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_ON_USE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
