"""The cache is never needed and never wrong."""

from __future__ import annotations

import os
import pickle

import pytest

from eddyline.sigma import read
from eddyline.sigma.loading import keep, key_of, recall

RULE = """\
title: t
id: aaaaaaaa-0000-4000-8000-000000000000
logsource: {product: windows}
detection: {s: {F: x}, condition: s}
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "eddyline" / "sigma"


@pytest.fixture
def no_parsing(monkeypatch):
    """Make reading fail, so that only the cache can answer."""
    import eddyline.sigma.reading  # noqa: PLC0415 - to be patched

    def refuse(*args, **kwargs):
        raise AssertionError("parsed")

    return lambda: monkeypatch.setattr(eddyline.sigma.reading, "read_contents", refuse)


def test_the_same_rules_are_read_once(home, no_parsing):
    first = read([RULE, "a: 1\nb: 2\n"])
    no_parsing()
    assert read([RULE, "a: 1\nb: 2\n"]) == first
    assert len(first.skipped) == 1
    for changed in ([RULE + "\n"], [RULE]):
        with pytest.raises(AssertionError, match="parsed"):
            read(changed)


def test_options_do_not_stick(home, no_parsing):
    read(RULE, missing="false", restrict=False)
    no_parsing()
    assert read(RULE).sources[0].reading.missing == "null"
    assert read(RULE, missing="false").sources[0].reading.missing == "false"


def test_it_can_be_switched_off_and_pipelines_are_never_kept(home):
    read(RULE, cache=False)
    read(RULE, [])
    assert not home.exists()


@pytest.mark.parametrize("damage", [b"", b"garbage", None, b"\x80\x05N."])
def test_a_damaged_cache_is_read_anew(home, no_parsing, damage):
    first = read(RULE)
    (file,) = home.iterdir()
    file.write_bytes(file.read_bytes()[:-20] if damage is None else damage)
    assert read(RULE) == first
    no_parsing()
    assert read(RULE) == first


class _Code:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_files_of_the_cache_run_no_code(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = read(RULE)
    (file,) = home.iterdir()
    for path in (file, file.with_suffix(".pickle")):
        path.write_bytes(pickle.dumps(_Code()))
    assert read(RULE) == first
    assert not (tmp_path / "ran").exists()


EVERYTHING = """\
title: t
id: bbbbbbbb-0000-4000-8000-000000000000
tags: [attack.t1059, attack.execution]
logsource: {product: windows, category: process_creation}
detection:
  text: {"A": "x?y*", "B|cased": Z, "C|contains|all": [p, q]}
  number: {"D": 5, "E|gte": 2.5, "F": 0, "G|lt": -3.0}
  boolean: {"H": true}
  empty: {"I": null, "J": ""}
  exists: {"K|exists": false}
  regex: {"L|re|i": "a+.b"}
  network: {"M|cidr": "10.0.0.0/8"}
  same: {"N|fieldref": O, "P|fieldref|startswith": Q}
  time: {"R|hour": 3}
  keyword: [alpha, 7]
  condition: (text or number or boolean or empty) and not (exists or regex) or
    network or same or time or keyword
"""


def test_rules_of_every_form_come_back_as_they_were(home):
    rules = read([EVERYTHING, "a: 1\nb: 2\n"], cache=False)
    assert (len(rules.sources), len(rules.skipped)) == (1, 1)
    keep("key", rules)
    assert recall("key") == rules
    assert recall("other") is None


def test_what_is_kept_is_bound_to_versions(home):
    found = key_of([], ["1.5"]), key_of([], ["2.0"]), key_of([], ["1.5"])
    assert found[0] == found[2] != found[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_a_folder_that_cannot_be_written_is_no_error(home):
    home.parent.mkdir(parents=True)
    home.parent.chmod(0o500)
    assert len(read(RULE).sources) == 1
    home.parent.chmod(0o700)


def test_a_file_in_the_way_is_no_error(home):
    home.parent.parent.mkdir(parents=True, exist_ok=True)
    home.parent.write_text("in the way")
    assert len(read(RULE).sources) == 1
    assert len(read(RULE).sources) == 1
