"""Constraints on real rows of the folder with data sets: the operator and its loops, no Spark."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.constraints.data import EVERY_US, cut
from benchmarks.constraints.learned import Ratio, both, compared, hot_ratio, time_ratio, told
from benchmarks.harness.needs import data_folder
from benchmarks.harness.scenario import Measurement, Runs, Settings

HOUR_US = 3_600_000_000

INTRUSION_WINDOW = 50_000
"""Connections in a window, as the thesis' windows."""


def orders(settings: Settings, ratio: Ratio) -> Measurement:
    """Orders of a day of ticks, and the message that deletes each; by their numbers, as keys."""
    table = pq.read_table(data_folder() / "ticks/messages.parquet")
    at = table["ts"].cast(pa.int64()).to_numpy() // 1_000
    kind, keys = table["type"].to_numpy(), table["order_id"].to_numpy()
    symbols = np.unique(table["symbol"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    keys = keys * 8 + symbols
    streams = {}
    for name, code in (("s", 1), ("t", 3)):
        mine = np.flatnonzero(kind == code)
        mine = mine[np.argsort(at[mine], kind="stable")]
        _, firsts = np.unique(keys[mine], return_index=True)
        mine = mine[np.sort(firsts)]
        streams[name] = (keys[mine], at[mine])
    n_batches = settings.pick(390, 130)
    *_, found = compared(
        partial(cut, streams, n_batches),
        both(2 * HOUR_US),
        keys={"s": 0, "t": 0},
        warm=n_batches // 3,
    )
    return Measurement(ratio(found), told(found), found)


def vessels(settings: Settings, ratio: Ratio) -> Measurement:
    """Positions of vessels that lie and of those that move, by vessel, of two hours."""
    table = pq.read_table(data_folder() / "vessels/ais_2022-01-03_sample.parquet")
    at = table["BaseDateTime"].cast(pa.int64()).to_numpy()
    order = np.argsort(at, kind="stable")
    at, keys = at[order], table["MMSI"].to_numpy()[order]
    moves = table["SOG"].to_numpy()[order] > 1
    streams = {"s": (keys[moves], at[moves]), "t": (keys[~moves], at[~moves])}
    n_batches = settings.pick(288, 96)
    *_, found = compared(partial(cut, streams, n_batches), both(2 * HOUR_US), warm=n_batches // 4)
    return Measurement(ratio(found), told(found), found)


def intrusion(settings: Settings, ratio: Ratio) -> Measurement:
    """Connections that failed and complete ones of the same host, among the last 50,000.

    The file names no host and has no times: its rows are in the order of their times, and a host is
    what its connections tell of it: the service, and how many of the last 100 connections were to
    that host, and to that service.
    """
    columns = ["service", "flag", "dst_host_count", "dst_host_srv_count"]
    table = pq.read_table(data_folder() / "intrusion/kddcup_10_percent.parquet", columns=columns)
    rows = table.to_pandas()
    hosts = rows.groupby(["service", "dst_host_count", "dst_host_srv_count"]).ngroup().to_numpy()
    n_rows = settings.pick(len(rows), len(rows) // 4)
    is_whole = (rows["flag"] == "SF").to_numpy()[:n_rows]
    at = np.arange(n_rows) * EVERY_US
    streams = {
        "s": (hosts[:n_rows][is_whole], at[is_whole]),
        "t": (hosts[:n_rows][~is_whole], at[~is_whole]),
    }
    lengths = both(INTRUSION_WINDOW * EVERY_US)
    n_batches = n_rows // 2_000
    *_, found = compared(partial(cut, streams, n_batches), lengths, warm=n_batches // 5)
    return Measurement(ratio(found), told(found), found)


RUNS: Runs = {
    "constraints_orders_hot": partial(orders, ratio=hot_ratio),
    "constraints_orders_time": partial(orders, ratio=time_ratio),
    "constraints_vessels_hot": partial(vessels, ratio=hot_ratio),
    "constraints_vessels_time": partial(vessels, ratio=time_ratio),
    "constraints_intrusion_hot": partial(intrusion, ratio=hot_ratio),
    "constraints_intrusion_time": partial(intrusion, ratio=time_ratio),
}
