"""A query from files into a Kafka topic; as a script, to be killed on the way."""

from __future__ import annotations

import os

import eddyline as el
from tests.spark.processes import main

SERVERS, TOPIC = "TESTS_KAFKA_SERVERS", "TESTS_KAFKA_TOPIC"
"""Variables with the address of the broker and the topic."""


def start(session, place):
    """Start the query; each file is a batch."""
    engine = el.Engine(session)
    files = session.readStream.schema("id LONG, k STRING").option("maxFilesPerTrigger", 1)
    engine.stream("s", files.parquet(str(place / "in")))
    query = engine.query("SELECT id, k FROM s WHERE id % 3 <> 0", name="q")
    run = query.start(
        "kafka",
        servers=os.environ[SERVERS],
        topic=os.environ[TOPIC],
        key="k",
        checkpoint=place / "ckpt",
        trigger="available_now",
    )
    return [run]


if __name__ == "__main__":
    main(start)
