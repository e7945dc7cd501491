"""Queries of every kind on two executors, some of which die or are slow; as a script.

``python -m tests.spark.run.clustered FOLDER FAULT`` runs over the files of a folder and prints what
went wrong on the way, as it should.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark import TaskContext

import eddyline as el
from tests.spark.run.lives import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

KINDS_TRIED = {
    "kills": ["filters", "rules", "left join", "aggregate of a join"],
    "waits": ["filters", "join", "aggregate"],
}
"""By what goes wrong."""
N_BATCHES = 6
DEADLY_BATCHES = {"executor": 2, "worker": 3}
"""In which batch what is killed with signal 9, while a task writes the results of operators."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "200ms",
    # Of the stages of one task, which have no others to be slower than.
    "spark.speculation.task.duration.threshold": "1s",
}
HOSTS = ("127.0.0.2", "127.0.0.3")
"""Where workers are: Spark starts a copy of a task on another host only."""
SLOW_S = 60.0
"""Longest wait of the task that is slow: until its copy has come (s)."""


def executor() -> int:
    """Return the process of the executor that this Python worker is of: its parent's parent."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


def is_first(mark: Path) -> bool:
    """Return whether nobody was here before, on any executor."""
    try:
        mark.open("x").close()
    except FileExistsError:
        return False
    return True


def kills(marks: Path, batch_id: int) -> None:
    """Kill the executor, or the worker, of the first task that comes here in its batch."""
    for what, of_batch in DEADLY_BATCHES.items():
        if batch_id == of_batch and is_first(marks / f"killed {what}"):
            os.kill(executor() if what == "executor" else os.getpid(), signal.SIGKILL)
            time.sleep(60)  # its end comes before


def waits(marks: Path, batch_id: int) -> None:
    """Be slow in the first task of a batch until a copy of it has come, which is noted."""
    copied = marks / f"copied in {batch_id}"
    if TaskContext.get().attemptNumber() > 0:
        copied.touch()
    elif batch_id > 0 and is_first(marks / f"slow in {batch_id}"):
        until = time.monotonic() + SLOW_S
        while not copied.exists() and time.monotonic() < until:
            time.sleep(0.05)


FAULTS = {"kills": kills, "waits": waits}


def sink_of(out: Path, marks: Path, fault: Callable[[Path, int], None]) -> Callable[..., None]:
    """Return a sink that writes each batch to a folder of its own, and has faults on the way."""

    def write(df: Any, batch_id: int) -> None:
        def faulty(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch
                fault(marks, batch_id)  # half of what this task gives has gone out

        rows = df.mapInArrow(faulty, df.schema)
        rows.write.mode("overwrite").parquet(str(out / f"{batch_id}"))

    return write


@contextmanager
def cluster(place: Path) -> Iterator[str]:
    """Run a master and a worker on each host, in processes of their own; gives the master's URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    web = ("--webui-port", "0")
    commands = [("master.Master", "--host", "127.0.0.1", "--port", f"{port}", *web)]
    for host in HOSTS:
        limits = ("--cores", "1", "--memory", "1500m", "--work-dir", str(place / host))
        commands.append(("worker.Worker", "--host", host, *limits, *web, url))
    start = str(Path(os.environ["SPARK_HOME"], "bin", "spark-class"))
    with (place / "daemons.log").open("w") as log:
        daemons = [
            subprocess.Popen(
                [start, f"org.apache.spark.deploy.{name}", *rest], stdout=log, stderr=log
            )
            for name, *rest in commands
        ]
    try:
        yield url
    finally:
        for each in daemons:
            each.terminate()


def main(place: Path, fault: str) -> None:
    """Run all kinds one after the other."""
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    conf = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.local.dir": str(place / "tmp"),
        "spark.sql.warehouse.dir": str(place / "wh"),
        **(SPECULATION if fault == "waits" else {}),
    }
    with cluster(place) as url:
        session = el.session(conf, master=url)
        for number, kind in enumerate(KINDS_TRIED[fault]):
            folder = place / f"{number}"
            (marks := folder / "marks").mkdir(parents=True)
            query = KINDS[kind].engine(session, place).queries["q"]
            sink = sink_of(folder / "out" / "q", marks, FAULTS[fault])
            run = query.start(sink, checkpoint=str(folder / "ckpt"), trigger="available_now")
            run.await_termination()
            seen = sorted(mark.name for mark in marks.iterdir())
            print(f"{kind}:", ", ".join(seen), flush=True)  # noqa: T201
        session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
