"""Rows of entities that move, and values of segments as a reader of their table computes them."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd

START = dt.datetime(2024, 3, 1)
WITHIN = {"x": 0.5, "y": "2 %"}


def walks(n_entities=6, n=400, seed=5):
    """Return rows of entities that move, with NULLs, NaN, gaps, ties and a constant stretch."""
    rng = np.random.default_rng(seed)
    parts = []
    for entity in range(n_entities):
        seconds = np.cumsum(rng.integers(0, 3, n)) + rng.integers(0, 60)
        seconds[n // 2 :] += 500
        x = np.cumsum(rng.normal(size=n)) + 20
        x[: n // 8] = 20
        y = np.cumsum(rng.normal(size=n)) + 100
        x[rng.random(n) < 0.05] = np.nan
        parts.append(
            pd.DataFrame(
                {
                    "fleet": f"f{entity % 2}" if entity else None,
                    "ship": entity,
                    "ts": pd.Timestamp(START) + pd.to_timedelta(seconds, unit="s"),
                    "x": x,
                    "y": y,
                }
            )
        )
    return pd.concat(parts, ignore_index=True).sample(frac=1, random_state=seed)


class Curves:
    """Values of segments at instants, as a reader of the table computes them."""

    def __init__(self, table):
        self.ships = {ship: rows.sort_values("lo") for ship, rows in table.groupby("ship")}

    def __call__(self, ship, times, name, column="coef"):
        """Return the values of an attribute at instants, NaN where there is no segment."""
        rows = self.ships[ship]
        at = pd.DatetimeIndex(times).to_numpy().astype("datetime64[us]").astype(np.int64)
        lo, hi, origin = (
            rows[each].to_numpy().astype("datetime64[us]").astype(np.int64)
            for each in ("lo", "hi", "origin")
        )
        place = np.searchsorted(lo, at, "right") - 1
        is_there = (place >= 0) & (at < hi[place])
        if column == "err":
            return np.where(is_there, rows[f"err_{name}"].to_numpy()[place], np.nan)
        coefs = np.stack(rows[f"coef_{name}"])[place]
        seconds = (at - origin[place]) / 1e6
        values = (coefs * seconds[:, None] ** np.arange(coefs.shape[1])).sum(axis=1)
        return np.where(is_there, values, np.nan)


def before(time, seconds, n):
    """Return instants in the middle of n parts of the seconds up to a time."""
    return time - pd.to_timedelta((np.arange(n) + 0.5) * seconds / n, unit="s")
