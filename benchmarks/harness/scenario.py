"""What a scenario is: an id that never changes, a measurement, and a target or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.harness.needs import missing

Status = Literal["ok", "short", "report", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the value of a scenario."""

    bound: float
    at_most: bool
    """Whether the value may not exceed the bound; otherwise it must reach it."""

    def is_met(self, value: float) -> bool:
        """Return whether a value keeps to the bound."""
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is run."""

    quick: bool = False
    """A fraction of the rows and seeds: for a look, not for a claim."""
    unseen: int = 0
    """The first seed of what nobody chose; the command line gives the number of the day."""

    def pick(self, full: int, quick: int) -> int:
        """Return the size to use."""
        return quick if self.quick else full

    def seeds(self, full: int, quick: int) -> range:
        """Return the seeds to use; always the first so many, never chosen ones."""
        return range(self.pick(full, quick))


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run of a scenario found."""

    value: float | None
    """The number that the target bounds; None if the scenario was skipped."""
    note: str = ""
    """What a reader needs beside the number, in a line."""
    details: dict[str, Any] = field(default_factory=dict)
    """Everything else that was measured, as plain values for the JSON."""
    has_failed: bool = False
    """Whether the scenario ended in an error, which is the note."""


Run = Callable[[Settings], Measurement]
Runs = Mapping[str, Run]
"""What runs each scenario of a module, by id."""


def skipped(why: str) -> Measurement:
    """Return the measurement of a scenario that could not run."""
    return Measurement(None, f"skipped: {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One line of the results."""

    id: str
    """Permanent: another workload or another measure is another id."""
    shows: str
    """What the value is, in words."""
    run: Run
    target: Target | None = None
    """None: reported without a target."""
    policies: tuple[str, ...] = ()
    """The ordering policies that it exercises."""
    counted: bool = True
    """Whether the value counts work and repeats exactly; otherwise it is a ratio of times."""
    needs: tuple[str, ...] = ()
    """``spark``: a Java for it; ``flink``: an environment with it; packages; files of data sets."""

    def measure(self, settings: Settings) -> Measurement:
        """Run it; an error is a measurement too, so that the other scenarios still run."""
        why = missing(self.needs)
        if why:
            return skipped(why)
        try:
            return self.run(settings)
        except Exception as error:  # noqa: BLE001 whatever one scenario raises, the others run
            told = " ".join(f"{type(error).__name__}: {error}".split())
            return Measurement(None, told[:300], has_failed=True)

    def status(self, measurement: Measurement) -> Status:
        """Return how a measurement stands against the target."""
        if measurement.value is None:
            return "failed" if measurement.has_failed else "skipped"
        if self.target is None:
            return "report"
        return "ok" if self.target.is_met(measurement.value) else "short"
