"""The workloads of the benchmarks of many rules: what varies, what stays, what cannot match."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.rules.data import (
    VARIED,
    _names,
    _slots,
    rows_v1,
    sigma_events_v1,
    sigma_folder,
    written,
)
from benchmarks.rules.numbers import (
    ABSENT,
    DUCKDB_RULES,
    KINDS,
    _by_duckdb,
    base_rules,
    bound,
    by_polars,
)

from tests.oracles.rules import matches


@pytest.fixture(scope="module")
def base():
    path = sigma_folder() / "process_creation.parquet"
    if not path.is_file():
        pytest.skip("no Sigma events; set EDDYLINE_DATA")
    return parquet.read_table(path)


@pytest.fixture(scope="module")
def events(base):
    return sigma_events_v1(2 * base.num_rows)


def oracle(rules, table):
    """What the oracle says; it knows columns as rules write them."""
    quoted = table.rename_columns([f"`{name}`" for name in table.column_names])
    return matches(bound(rules, table), quoted)


@pytest.mark.parametrize("kind", KINDS)
def test_rules_repeat_and_differ_by_seed(kind):
    assert KINDS[kind](50) == KINDS[kind](50)
    assert KINDS[kind](50) != KINDS[kind](50, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_rule_holds_for_some_rows_and_for_few(kind):
    rules = KINDS[kind](2_000)
    # Most equalities hold once in millions of rows: here those on the code of twenty values.
    chosen = [n for n in rules if kind != "equalities" or re.match(r"c0 = \d+ AND t", rules[n])]
    asked = {name: rules[name] for name in chosen[:200]}
    assert [rule.name for rule in bound(asked, rows_v1(1))] == [*asked]
    found = by_polars(1_000, asked)
    assert 0 < sum(found.values()) < 0.05 * 200 * 1_000


@pytest.mark.parametrize("kind", ABSENT)
def test_rules_that_cannot_match_do_not(kind):
    table = rows_v1(60)
    rules = dict(list(ABSENT[kind]().items())[:300])
    assert oracle(rules, table) == [[]] * table.num_rows


def test_the_rules_that_others_are_added_to_are_a_thousand():
    assert len(base_rules()) == 1_000


def test_rows_repeat():
    assert rows_v1(100).equals(rows_v1(100))
    assert not rows_v1(100).equals(rows_v1(100, seed=1))


def test_events_repeat(events):
    again = sigma_events_v1(events.num_rows)
    assert again.equals(events)


def test_ids_are_unique_and_lengths_stay(base, events):
    assert events["event_id"].to_pylist() == list(range(events.num_rows))
    for name in VARIED:
        given, made = (
            np.sort(pc.fill_null(pc.binary_length(t[name]), -1).to_numpy()) for t in (base, events)
        )
        assert (np.repeat(given, 2) == made).all()


def test_a_quarter_of_the_events_keeps_its_texts(base, events):
    known = set(base["CommandLine"].to_pylist())
    long_numbers = pc.match_substring_regex(events["CommandLine"], "[ =][0-9]{6,}")
    chosen = events.filter(long_numbers)["CommandLine"].to_pylist()
    share = sum(text in known for text in chosen) / len(chosen)
    assert 0.2 < share < 0.3


def test_what_rules_look_at_stays(base, events):
    for name in ("OriginalFileName", "Hashes", "IntegrityLevel", "Channel"):
        assert sorted(base[name].to_pylist() * 2, key=repr) == sorted(
            events[name].to_pylist(), key=repr
        )
    suffix = re.compile(r"\\(cmd|powershell|svchost|conhost)\.exe$", re.I)
    given, made = (
        sum(bool(text and suffix.search(text)) for text in t["Image"].to_pylist())
        for t in (base, events)
    )
    assert 2 * given == made


def test_a_name_is_the_same_in_all_columns_of_an_event(base, events):
    rows = events.filter(pc.match_substring_regex(events["Image"], r"(?i)\\users\\[a-z]{5,}\\"))
    n_same = n_all = 0
    for row in rows.select(["Image", "CommandLine"]).to_pylist():
        user = re.search(r"(?i)\\users\\([^\\]+)\\", row["Image"])[1].lower()
        other = re.search(r"(?i)\\users\\([^\\]+)\\", row["CommandLine"] or "")
        if other is not None:
            n_all += 1
            n_same += other[1].lower() == user
    originals = base.filter(pc.match_substring_regex(base["Image"], r"(?i)\\users\\[a-z]{5,}\\"))
    n_before = n_before_all = 0
    for row in originals.select(["Image", "CommandLine"]).to_pylist():
        user = re.search(r"(?i)\\users\\([^\\]+)\\", row["Image"])[1].lower()
        other = re.search(r"(?i)\\users\\([^\\]+)\\", row["CommandLine"] or "")
        if other is not None:
            n_before_all += 1
            n_before += other[1].lower() == user
    assert n_all == 2 * n_before_all
    assert n_same == 2 * n_before


def test_numbers_ids_and_names_are_found(base):
    names = _names(base.combine_chunks())
    text = rb"C:\Users\pgustavo\x12 1234 {12345678-12AB-34cd-56ef-0123456789ab} system32 pgustavos"
    kinds, places = _slots(text, names)
    shown = "".join("-nix"[kind] for kind in kinds)
    assert shown[9:17] == "x" * 8
    assert places[9:17].tolist() == list(range(8))
    assert shown[22:26] == "n" * 4
    assert shown[28:64] == "i" * 36
    assert set(shown[64:]) == {"-"}


def test_events_are_as_spark_has_them(events):
    assert not any(pa.types.is_large_string(each.type) for each in events.schema)
    events.validate(full=True)


def test_files_hold_all_rows():
    table = rows_v1(101)
    folder = written(table, n_files=4)
    assert len(list(folder.iterdir())) == 4
    assert parquet.read_table(folder).sort_by("path").equals(table.sort_by("path"))


@pytest.mark.parametrize("n_rules", [1, DUCKDB_RULES, DUCKDB_RULES + 1])
def test_statements_of_a_part_of_the_rules_count_all(n_rules):
    rules = KINDS["ranges"](n_rules)
    found = _by_duckdb(2_000, rules)
    assert list(found) == list(rules)
    assert found == by_polars(2_000, rules)
    assert n_rules == 1 or sum(found.values())
