"""Rows of entities, drawn: walks, jumps, constants, noise, missing values, ties and gaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from eddyline.models.fitting.bounds import Bound

METHODS = [
    ("auto", 4),
    ("constant", 0),
    ("swing", 1),
    ("connected", 1),
    ("linear", 1),
    ("polynomial", 0),
    ("polynomial", 2),
    ("polynomial", 3),
    ("polynomial", 4),
]
"""Methods with degrees."""

EPOCHS = [0, 1_700_000_000_000_000, -62_135_596_800_000_000, 253_402_300_799_000_000]
"""Instants to count from (µs): 1970, 2023, the years 1 and 9999."""

SCALES = [1e-300, 1e-9, 1.0, 1e6, 1e300]


@dataclass
class Rows:
    keys: np.ndarray
    times: np.ndarray
    values: dict[str, np.ndarray]
    within: dict[str, Bound]

    @property
    def args(self):
        return self.keys, self.times, self.values, self.within

    def take(self, places):
        values = {name: each[places] for name, each in self.values.items()}
        return Rows(self.keys[places], self.times[places], values, self.within)


def curve(kind, rng, n, scale):
    """Return values of a kind."""
    steps = np.arange(n)
    made = {
        "walk": lambda: np.cumsum(rng.normal(size=n)),
        "jumps": lambda: np.cumsum(rng.integers(-20, 20, n) * (rng.random(n) < 0.1)) * 1.0,
        "constant": lambda: np.full(n, rng.normal()),
        "line": lambda: 3.0 * steps - 7,
        "noise": lambda: rng.normal(size=n),
        "wave": lambda: 10 * np.sin(steps / 7),
        "zeros": lambda: np.zeros(n),
        "spikes": lambda: rng.standard_cauchy(size=n),
    }
    return made[kind]() * scale


KINDS = ["walk", "jumps", "constant", "line", "noise", "wave", "zeros", "spikes"]


@st.composite
def drawn_rows(draw, max_rows=120, missing=True, ties=True):
    """Draw rows by entity and time, with one to three attributes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, max_rows))
    keys = np.sort(rng.integers(0, draw(st.integers(1, 4)), n))
    keys = np.unique(keys, return_inverse=True)[1].astype(np.int64)
    step = draw(st.sampled_from([1, 1_000_000, 3_600_000_000]))
    steps = rng.integers(0 if ties else 1, draw(st.sampled_from([2, 3, 50])) + 1, n)
    steps = np.maximum(steps, 0 if ties else 1)
    times = np.cumsum(steps) * step + draw(st.sampled_from(EPOCHS))
    values, within = {}, {}
    for name in "abc"[: draw(st.integers(1, 3))]:
        scale = draw(st.sampled_from(SCALES))
        value = curve(draw(st.sampled_from(KINDS)), rng, n, scale)
        if missing and draw(st.booleans()):
            value[rng.random(n) < draw(st.sampled_from([0.1, 0.9]))] = draw(
                st.sampled_from([np.nan, np.inf])
            )
        values[name] = value + draw(st.sampled_from([0.0, 0.0, 1000.0])) * scale
        within[name] = draw(
            st.sampled_from([Bound(0.0), Bound(scale / 10), Bound(2 * scale), Bound(0.01, True)])
        )
    return Rows(keys, times.astype(np.int64), values, within)
