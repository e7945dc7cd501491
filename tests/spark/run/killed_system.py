"""A query, and one over the stream about the system; as a script, to be killed on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import eddyline as el
from tests.spark.processes import main
from tests.spark.run.lives import SCHEMA, stream_of

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "SELECT query, batch, component, entity, name, value FROM system WHERE batch >= -1"


class Last:
    """The run that watches, which ends once all is told."""

    name = "watch"

    def __init__(self, run: Any) -> None:
        self.run = run

    def await_termination(self) -> None:
        """Wait until everything is read."""
        self.run.process_all_available()
        self.run.stop()


def start(spark: Any, folder: Path) -> list[Any]:
    """Start both queries over the files of a folder."""
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s", schema=SCHEMA))
    watch = engine.query(TEXT, name="watch")
    query = engine.query("SELECT id, k FROM s WHERE k > 3 AND id % 2 = 0", name="q")

    def where(name: str) -> dict[str, str]:
        return {"path": str(folder / "out" / name), "checkpoint": str(folder / "ckpt" / name)}

    run = query.start("parquet", trigger="available_now", **where("q"))
    return [run, Last(watch.start("parquet", **where("watch")))]


if __name__ == "__main__":
    main(start)
