"""A query with a Python function, a join and an aggregate; as a script, to be killed on the way."""

from __future__ import annotations

from tests.spark.processes import main
from tests.spark.run.lives import KINDS

COMPOSED = KINDS["aggregate of a join"]

if __name__ == "__main__":
    main(COMPOSED.start)
