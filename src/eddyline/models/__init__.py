"""Models: polynomials of time in place of runs of rows.

Queries are solved on them. Rows come in, or segments that were written before; segments, rows of
results and reports go out. Invariant: a segment is never farther from a row than its certified
error, so each result has an error of its own. Answers do not depend on the order of rows or on how
batches cut them.

The room has floors. Each floor has a page in its ``__init__``:

* ``solving/``: polynomials, conditions, and joins of segments that are solved in closed form;
* ``fitting/``: rows become segments within the bounds of attributes;
* ``windows/``: sums, averages, least and greatest values, over windows and over entities;
* ``entities/``: what a bucket keeps of its entities between batches, and until when it is final;
* ``streams/``: what is asked of streams, and the work of a bucket in a batch;
* ``planning/``: what steps will give, and what joins ask before they make pairs;
* ``sql/``: ``MODEL`` in SQL.

What all floors share lies beside them. Read ``segments`` first, then ``steps`` and ``graph``, then
``solving/where`` and ``fitting/fit``, then ``streams/plan`` and ``streams/bucket``. ``timeline``
orders the instants of many entities, and ``revisions`` says which of several segments counts.

A new step is a class in ``steps`` whose arithmetic is in ``solving/`` or ``windows/``. The room
imports what stands above ``models/``, and no other operator.
"""

from importlib import import_module
from typing import Any

_ON_USE = {
    **dict.fromkeys(["declare", "fit", "read"], "eddyline.spark.models.fitting"),
    "latest": "eddyline.spark.models.laying",
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
