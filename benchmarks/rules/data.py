"""The inputs of the benchmarks of many rules: seeded, and versioned by name (see ``workloads``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from benchmarks.harness.needs import data_folder
from benchmarks.harness.spark import written
from eddyline.data.arrays import Bytes, Ints, Mask

N_NUMBERS = 10
"""Columns ``a0`` to ``a9``: whole numbers, uniform."""

DOMAIN = 10_000
"""Their values are 0 to one below this."""

CODE_VALUES = (20, 200, 2_000, 20_000)
"""Values of the columns ``c0`` to ``c3``, each as often as the others."""

WORDS = (
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett",
    "kilo", "lima", "mike", "november", "oscar", "papa", "quebec", "romeo", "sierra", "tango",
    "uniform", "victor", "whiskey", "xray", "yankee", "zulu",
)  # fmt: skip
"""What the texts of ``path`` are made of, with numbers."""


def rows_v1(n_rows: int, seed: int = 0) -> pa.Table:
    """Return rows of ten numbers, four codes, and two texts (``tenant``, ``path``)."""
    rng = np.random.default_rng([seed, 41])
    columns: dict[str, pa.Array] = {
        f"a{n}": pa.array(rng.integers(0, DOMAIN, n_rows, dtype=np.int32)) for n in range(N_NUMBERS)
    }
    for n, n_values in enumerate(CODE_VALUES):
        columns[f"c{n}"] = pa.array(rng.integers(0, n_values, n_rows, dtype=np.int32))
    tenants = pa.array([f"tenant-{n}" for n in range(1_000)])
    columns["tenant"] = tenants.take(pa.array(rng.integers(0, len(tenants), n_rows)))
    words = pa.array(WORDS)

    def drawn() -> pa.Array:
        return words.take(pa.array(rng.integers(0, len(words), n_rows)))

    numbers = pa.array(rng.integers(0, 100_000, n_rows)).cast(pa.string())
    columns["path"] = pc.binary_join_element_wise("", drawn(), drawn(), numbers, drawn(), "/")
    return pa.table(columns)


def range_rules_v1(n_rules: int, seed: int = 0, *, first_value: int = 0) -> dict[str, str]:
    """Return rules of four ranges each (50 rules: 200 range predicates, as in DESIGN 6).

    A range holds for 5 to 35 % of the rows, a rule for one row in some 500. ``first_value`` is
    added to both ends; from ``DOMAIN`` on no row is inside.
    """
    rng = np.random.default_rng([seed, 42])
    rules = {}
    for rule in range(n_rules):
        chosen = np.sort(rng.choice(N_NUMBERS, 4, replace=False))
        widths = rng.integers(DOMAIN // 20, DOMAIN * 7 // 20, 4)
        lows = first_value + rng.integers(0, DOMAIN - widths)
        parts = [
            f"a{column} BETWEEN {low} AND {low + width}"
            for column, low, width in zip(chosen, lows, widths, strict=True)
        ]
        rules[f"range_{rule}"] = " AND ".join(parts)
    return rules


def equality_rules_v1(n_rules: int, seed: int = 0, *, first_code: int = 0) -> dict[str, str]:
    """Return rules of two or three equalities on the codes and the tenant.

    ``first_code`` is added to every code; from 20,000 on no row has it.
    """
    rng = np.random.default_rng([seed, 43])
    rules = {}
    for rule in range(n_rules):
        chosen = np.sort(rng.choice(len(CODE_VALUES), rng.integers(1, 3), replace=False))
        parts = [f"c{c} = {first_code + rng.integers(0, CODE_VALUES[c])}" for c in chosen]
        parts.append(f"tenant = 'tenant-{rng.integers(0, 1_000)}'")
        rules[f"equal_{rule}"] = " AND ".join(parts)
    return rules


def mixed_rules_v1(n_rules: int, seed: int = 0, *, absent: str = "") -> dict[str, str]:
    """Return rules of an equality, a range and texts, with OR and NOT.

    ``absent`` is added to every text; one that no row has keeps a rule from holding.
    """
    rng = np.random.default_rng([seed, 44])

    def word() -> str:
        return str(WORDS[rng.integers(0, len(WORDS))])

    rules = {}
    for rule in range(n_rules):
        low = rng.integers(0, DOMAIN * 4 // 5)
        ranged = f"a{rng.integers(0, N_NUMBERS)} BETWEEN {low} AND {low + DOMAIN // 5}"
        kind = rule % 4
        if kind == 0:
            text = f"path LIKE '/{word()}/{word()}{absent}%' AND {ranged}"
        elif kind == 1:
            inside = f"path LIKE '%{rng.integers(100, 1_000)}/{word()}{absent}'"
            text = f"({inside} OR path LIKE '%99/{word()}{absent}') AND NOT {ranged}"
        elif kind == 2:
            text = f"path LIKE '%{word()}/{rng.integers(10, 100)}{absent}%' AND {ranged}"
        else:
            tenant = f"tenant = 'tenant-{rng.integers(0, 1_000)}{absent}'"
            text = f"{tenant} AND ({ranged} OR path LIKE '%/{word()}{absent}')"
        rules[f"mixed_{rule}"] = text
    return rules


VARIED = ("CommandLine", "ParentCommandLine", "Image", "ParentImage", "CurrentDirectory", "User",
          "ParentUser", "Computer", "ProcessGuid", "ParentProcessGuid", "LogonGuid", "LogonId",
          "SubjectUserName", "TargetUserName", "NewProcessName", "ParentProcessName",
          "UtcTime")  # fmt: skip
"""Columns whose texts are varied."""

KEPT_FRAC = 0.25
"""Share of the events whose texts stay as they are: what repeats, repeats."""

N_PEOPLE = 5_000
"""Names that stand in for the users and machines of the events."""

N_PLACES = 16
"""Characters of a name or number that change independently; later ones repeat their changes."""

NOT_NAMES = frozenset(
    ("admin", "administrator", "default", "guest", "local", "network", "public", "service",
     "system", "test", "user", "users")
)  # fmt: skip
"""Names of users that mean something to rules, or to everybody: they stay."""

NUMBER, LETTER_OF_ID, LETTER_OF_NAME = 1, 2, 3

_NUMBERS = rb"(?<![0-9A-Za-z])[0-9]{3,}(?![0-9A-Za-z])|(?<=[A-Za-z_])[0-9]{3,}(?![0-9A-Za-z])"
_IDS = (
    rb"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
    rb"|(?<=0x)[0-9A-Fa-f]{3,7}(?![0-9A-Fa-f])|(?<![0-9A-Za-z])[0-9A-F]{16}(?![0-9A-Za-z])"
)


def sigma_folder() -> Path:
    """Return the folder of Sigma rules and events."""
    return data_folder() / "sigma"


def rules_folder() -> str:
    """Return the folder of the Sigma rules about process creations."""
    return str(sigma_folder() / "rules_process_creation")


def sigma_events_v1(n_rows: int, seed: int = 0) -> pa.Table:
    """Return real process creations, replicated with varied values.

    Whole copies of the 8,534 events, each copy in an order of its own. In three quarters of the
    events the texts are changed, never their lengths, and alike in all columns of one event: names
    of users and machines become one of 5,000 made-up ones, numbers of three and more digits and
    the digits of GUIDs, handles and logons other ones. Ids, process ids, record numbers and times
    are new in every event. All else is as it was: programs, arguments, hashes, payloads.

    Args:
        n_rows: events.
        seed: of order and variation.
    """
    rng = np.random.default_rng([seed, 45])
    base = parquet.read_table(sigma_folder() / "process_creation.parquet")
    base = base.drop_columns(["source_repo", "source_path"]).combine_chunks()
    names = _names(base)
    n_copies = -(-n_rows // base.num_rows)
    order = np.concatenate([rng.permutation(base.num_rows) for _ in range(n_copies)])[:n_rows]
    changes = _Changes.draw(rng, n_rows)
    columns = {
        name: _varied(base[name].combine_chunks(), order, changes, names)
        if name in VARIED
        else base[name].combine_chunks().take(pa.array(order))
        for name in base.column_names
    }
    columns["event_id"] = pa.array(np.arange(n_rows))
    for name in ("ProcessId", "ParentProcessId", "EventRecordID"):
        drawn = pa.array(rng.integers(1, 1 << 16, n_rows), base[name].type)
        columns[name] = pc.if_else(columns[name].is_null(), pa.scalar(None, drawn.type), drawn)
    times = 1_700_000_000_000_000 + np.cumsum(rng.integers(0, 100_000, n_rows))
    columns["TimeCreated"] = pa.array(times).cast(base["TimeCreated"].type)
    return _with_strings(pa.table(columns))


@dataclass(frozen=True, slots=True)
class _Changes:
    """What is done to the texts of each event."""

    shifts: Bytes
    """By how much digits and letters of ids move on, by their place ((R, places))."""
    names: Bytes
    """Letters that names are made of ((R, places))."""
    is_kept: Mask
    """Events whose texts stay."""

    @classmethod
    def draw(cls, rng: np.random.Generator, n_rows: int) -> _Changes:
        sounds = (b"bcdfghklmnprstvz", b"aeiou")
        people = np.empty((N_PEOPLE, N_PLACES), np.uint8)
        for place in range(N_PLACES):
            letters = np.frombuffer(sounds[place % 2], np.uint8)
            people[:, place] = rng.choice(letters, N_PEOPLE)
        return cls(
            rng.integers(0, 250, (n_rows, N_PLACES), dtype=np.uint8),
            people[rng.integers(0, N_PEOPLE, n_rows)],
            rng.random(n_rows) < KEPT_FRAC,
        )


def _names(base: pa.Table) -> re.Pattern[bytes]:
    """Return a pattern of the names of users and machines in the events."""
    texts: Iterable[str] = (
        text
        for name in ("User", "ParentUser", "SubjectUserName", "Computer")
        for text in base[name].unique().to_pylist()
        if text
    )
    found = {re.split(r"[.$]", text.rpartition("\\")[2])[0] for text in texts}
    joined = "\0".join(text for text in base["CommandLine"].unique().to_pylist() if text)
    found |= set(re.findall(r"(?i)\\users\\([^\\\"' \0]+)\\", joined))
    known = {name for name in found if len(name) > 3 and name.lower() not in NOT_NAMES}
    known = {name for name in known if " " not in name and re.search("[A-Za-z]{3}", name)}
    longest = "|".join(re.escape(name) for name in sorted(known, key=lambda n: (-len(n), n)))
    return re.compile(rf"(?i)(?<![0-9A-Za-z])(?:{longest})(?![0-9A-Za-z])".encode())


def _slots(data: bytes, names: re.Pattern[bytes]) -> tuple[Bytes, Bytes]:
    """Return for each byte what kind of change it gets (0: none), and its place in the change."""
    kinds, places = np.zeros(len(data), np.uint8), np.zeros(len(data), np.uint8)
    patterns = {NUMBER: re.compile(_NUMBERS), LETTER_OF_ID: re.compile(_IDS), LETTER_OF_NAME: names}
    for kind, pattern in patterns.items():
        for match in pattern.finditer(data):
            kinds[match.start() : match.end()] = kind
            places[match.start() : match.end()] = np.arange(match.end() - match.start()) % N_PLACES
    return kinds, places


def _varied(base: pa.Array, order: Ints, changes: _Changes, names: re.Pattern[bytes]) -> pa.Array:
    """Return the texts of the events, varied."""
    base = base.cast(pa.large_string())
    raw = base.buffers()[2].to_pybytes()
    offsets = np.frombuffer(base.buffers()[1], np.int64)
    # A zero byte between the texts, so that nothing is found across two of them.
    ends = offsets[1:] + np.arange(len(base))
    spaced = np.insert(np.frombuffer(raw, np.uint8), offsets[1:-1], 0).tobytes()
    kinds, places = _slots(spaced, names)
    is_text = np.ones(len(spaced), np.bool_)
    is_text[ends[:-1]] = False
    packed = [
        pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(base), [None, base.buffers()[1], pa.py_buffer(each[is_text])]
        )
        for each in (kinds, places)
    ]
    parts = []
    for start in range(0, len(order), 50_000):
        rows = slice(start, start + 50_000)
        taken = pa.array(order[rows])
        texts = base.take(taken)
        starts = np.frombuffer(texts.buffers()[1], np.int64)[: len(taken) + 1]
        data = np.frombuffer(texts.buffers()[2], np.uint8).copy()
        kind, place = (np.frombuffer(each.take(taken).buffers()[2], np.uint8) for each in packed)
        _change(data, starts, kind[: len(data)], place[: len(data)], changes, rows)
        validity, of_texts, _ = texts.buffers()
        changed = pa.py_buffer(data), validity, texts.null_count
        parts.append(pa.LargeStringArray.from_buffers(len(taken), of_texts, *changed))
    return pa.concat_arrays(parts)


def _change(
    data: Bytes, starts: Ints, kinds: Bytes, places: Bytes, changes: _Changes, rows: slice
) -> None:
    """Change the bytes of some texts in place."""
    at = np.flatnonzero(kinds)
    event = starts.searchsorted(at, "right") - 1
    is_changed = ~changes.is_kept[rows][event]
    at, event = at[is_changed], event[is_changed]
    old, kind, place = data[at], kinds[at], places[at]
    shift = changes.shifts[rows][event, place]
    is_digit = (old >= ord("0")) & (old <= ord("9"))
    is_lower = (old >= ord("a")) & (old <= ord("z"))
    is_upper = (old >= ord("A")) & (old <= ord("Z"))
    # The first digit stays no zero, so that a number stays a number of as many digits.
    first = is_digit & (place == 0) & (old > ord("0")) & (kind == NUMBER)
    digits = np.where(first, ord("1") + (old - ord("1") + shift) % 9,
                      ord("0") + (old - ord("0") + shift) % 10)  # fmt: skip
    a_of = np.where(is_lower, ord("a"), ord("A"))
    of_id = a_of + (old - a_of + shift) % 6
    of_name = changes.names[rows][event, place] - np.where(is_upper, 32, 0)
    is_letter = is_lower | is_upper
    new = np.where(is_digit & (kind != LETTER_OF_NAME), digits, old)
    new = np.where(is_letter & (kind == LETTER_OF_ID), of_id, new)
    data[at] = np.where(is_letter & (kind == LETTER_OF_NAME), of_name, new)


def _with_strings(table: pa.Table) -> pa.Table:
    """Return a table with texts as Spark has them."""
    fields = [
        pa.field(each.name, pa.string() if pa.types.is_large_string(each.type) else each.type)
        for each in table.schema
    ]
    return table.cast(pa.schema(fields))


@cache
def sigma_files(n_rows: int) -> Path:
    """Return a folder with ``sigma_events_v1`` as eight Parquet files, gone with this process."""
    return written(sigma_events_v1(n_rows), n_files=8)
