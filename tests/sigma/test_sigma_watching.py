"""A set of Sigma rules follows its folder: what changed is in force, what is broken is told."""

from __future__ import annotations

import itertools
import os
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import OptionError, RuleFilesWarning, SourceError
from eddyline.sigma.files import SETTLE_S, every_s

FINE = """
title: {title}
id: {id}
logsource: {{product: windows}}
detection:
  selection: {{Image: '{image}'}}
  condition: selection
"""
A, B = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
CORRELATED = """
title: many
id: 00000000-0000-4000-8000-00000000000c
correlation:
  type: event_count
  rules: [00000000-0000-4000-8000-00000000000a]
  group-by: [Image]
  timespan: 1m
  condition: {gte: 3}
"""


def rule(id=A, image="a.exe", title="one"):
    return FINE.format(id=id, image=image, title=title)


class Time:
    """A clock that tests move; whoever sleeps may let something happen."""

    def __init__(self):
        self.now, self.slept, self.events = 100.0, 0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept += 1
        assert seconds == SETTLE_S
        if self.events:
            self.events.pop(0)()


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "rules"
    made.mkdir()
    (made / "a.yml").write_text(rule())
    return made


@pytest.fixture
def load(folder, time):
    def load(watch="0 seconds"):
        rules = el.sigma.load(folder, watch=watch, cache=False)
        rules.store.follower._clock, rules.store.follower._sleep = time, time.sleep
        rules.store.follower._looked_at = time.now
        return rules

    return load


SECONDS = itertools.count(1_000_000_000)


def write(path, text):
    """Write a file whose time is another one than before, as it is where people write."""
    path.write_text(text)
    os.utime(path, (next(SECONDS),) * 2)


def images(rules):
    """Return what each rule looks for."""
    _, sources = rules.store.now()
    return {
        name: each.text.partition("Image: '")[2].partition("'")[0] for name, each in sources.items()
    }


def test_what_comes_goes_and_changes_is_taken_in(folder, load):
    rules = load()
    assert rules.store.follow(3) == []
    version = rules.store.now()[0]
    write(folder / "a.yml", rule(image="other.exe"))
    (folder / "deep").mkdir()
    write(folder / "deep" / "b.yaml", rule(B, "b.exe"))
    assert rules.store.follow(3) == []
    assert images(rules) == {A: "other.exe", B: "b.exe"}
    assert rules.store.now()[0] > version
    (folder / "a.yml").unlink()
    rules.store.follow(4)
    assert images(rules) == {B: "b.exe"}
    version = rules.store.now()[0]
    os.utime(folder / "deep" / "b.yaml", (5, 5))  # the same content
    rules.store.follow(5)
    assert rules.store.now()[0] == version


def test_a_file_under_another_name_and_a_rule_under_another_id(folder, load):
    rules = load()
    (folder / "a.yml").rename(folder / "c.yml")
    rules.store.follow(0)
    assert rules.info[A]["path"] == str(folder / "c.yml")
    write(folder / "c.yml", rule(B))
    rules.store.follow(0)
    assert list(images(rules)) == [B]
    write(folder / "c.yml", rule(B, title="another title"))
    rules.store.follow(0)
    assert rules.info[B]["title"] == "another title"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("title: [", "a.yml:1"),
        ("title: x\nid: y\nlogsource: {product: windows}\n", "a.yml"),
        (rule().replace("'a.exe'", "'b.exe'") + "---\ntitle: [", "a.yml"),
        ("\xff", "not UTF-8"),
    ],
)
def test_a_broken_file_is_told_once_and_its_rules_stay(folder, load, text, why):
    rules = load()
    (folder / "a.yml").write_bytes(text.encode("latin-1"))
    with pytest.warns(RuleFilesWarning, match="not taken in"):
        (entry,) = rules.store.follow(7)
    assert (entry.batch_id, entry.component, entry.event) == (7, "rules", "broken")
    assert why in entry.evidence["why"]
    assert images(rules) == {A: "a.exe"}
    assert len(rules.store.troubles) == 1
    os.utime(folder / "a.yml", (7, 7))
    assert rules.store.follow(8) == []
    write(folder / "a.yml", rule(image="fine.exe"))
    assert rules.store.follow(9) == []
    assert images(rules) == {A: "fine.exe"}
    assert rules.store.troubles == ()


def test_what_was_broken_from_the_beginning_comes_once_it_is_mended(folder, load):
    write(folder / "b.yml", "title: [")
    with pytest.warns(UserWarning, match="1 of 2 Sigma rules do not run"):
        rules = load()
    assert [each.name for each in rules.skipped] == ["b"]
    write(folder / "a.yml", rule(image="other.exe"))
    assert rules.store.follow(0) == []
    assert [each.name for each in rules.skipped] == ["b"]
    write(folder / "b.yml", rule(B))
    assert rules.store.follow(0) == []
    assert list(images(rules)) == [A, B]
    assert rules.skipped == ()


def test_a_folder_without_files_is_no_set_without_rules(folder, load):
    rules = load()
    (folder / "a.yml").rename(folder.parent / "a.yml")
    with pytest.warns(RuleFilesWarning, match="has no rules any more"):
        rules.store.follow(0)
    assert images(rules) == {A: "a.exe"}
    (folder.parent / "a.yml").rename(folder / "a.yml")
    assert len(rules.store.troubles) == 1
    assert rules.store.follow(1) == []
    assert rules.store.troubles == ()


def test_a_file_that_goes_while_it_is_read_is_looked_for_again(folder, load, monkeypatch):
    rules = load()
    follower = rules.store.follower
    assert follower.place == str(folder)
    write(folder / "a.yml", rule(image="other.exe"))

    def gone(files):
        raise SourceError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(follower, "_read", gone)
        with pytest.warns(RuleFilesWarning, match="gone"):
            rules.store.follow(0)
    assert images(rules) == {A: "a.exe"}
    assert rules.store.follow(1) == []
    assert images(rules) == {A: "other.exe"}
    assert rules.store.troubles == ()


def test_a_name_of_another_rule_is_told(folder, load):
    rules = load()
    rules.add("mine", "Image = 'x'")
    write(folder / "b.yml", rule("mine"))
    with pytest.warns(RuleFilesWarning, match="another rule of the set is called 'mine'"):
        rules.store.follow(0)
    assert [*images(rules)] == [A, "mine"]
    write(folder / "b.yml", rule(A, image="b.exe"))  # as two files with one id are read
    assert rules.store.follow(0) == []
    assert images(rules) == {A: "a.exe", "mine": "", f"{A}#2": "b.exe"}


def test_files_that_are_being_written_are_waited_for(folder, load, time):
    rules = load()
    whole = rule(image="whole.exe")
    write(folder / "a.yml", whole[:60])
    time.events = [
        lambda: write(folder / "a.yml", whole[:99]),
        lambda: write(folder / "a.yml", whole),
    ]
    assert rules.store.follow(0) == []
    assert images(rules) == {A: "whole.exe"}
    assert time.slept == 3
    (folder / "a.yml").unlink()  # an editor renames another file to its name
    time.events = [lambda: write(folder / "a.yml", rule(image="again.exe"))]
    rules.store.follow(0)
    assert images(rules) == {A: "again.exe"}


def test_what_never_settles_is_left_for_the_next_batch(folder, load, time):
    rules = load()
    time.events = [lambda: write(folder / "a.yml", rule(title="x" * time.slept))] * 50
    write(folder / "a.yml", rule(image="moving.exe"))
    assert rules.store.follow(0) == []
    assert images(rules) == {A: "a.exe"}
    time.events = []
    rules.store.follow(0)
    assert rules.info[A]["title"].startswith("xx")


def test_temporary_files_of_editors_are_none_from_the_beginning(folder, load):
    (folder / ".b.yml").write_text(rule(B, "b.exe"))
    assert images(load()) == {A: "a.exe"}


def test_temporary_files_of_editors_are_no_rules(folder, load):
    rules = load()
    for name in (".#a.yml", ".a.yml.swp", "#a.yml#", "a.yml~", ".b.yml", "4913", "note.txt"):
        (folder / name).write_text(rule(B))
    assert rules.store.follow(0) == []
    assert list(images(rules)) == [A]


def test_files_that_are_one_by_links_hold_their_rules_until_the_last_is_gone(
    folder, load, tmp_path
):
    target = tmp_path / "target.yml"
    target.write_text(rule(B, "b.exe"))
    for name in ("b.yml", "c.yml"):
        (folder / name).symlink_to(target)
    rules = load()
    (folder / "b.yml").unlink()
    rules.store.follow(1)
    assert images(rules) == {A: "a.exe", B: "b.exe"}
    write(target, rule(B, "new.exe"))
    rules.store.follow(2)
    assert images(rules) == {A: "a.exe", B: "new.exe"}
    (folder / "c.yml").unlink()
    rules.store.follow(3)
    assert images(rules) == {A: "a.exe"}


def test_what_is_no_file_is_passed_by(folder, load, tmp_path):
    rules = load()
    os.mkfifo(folder / "pipe.yml")
    (folder / "folder.yml").mkdir()
    (folder / "nowhere.yml").symlink_to(tmp_path / "gone")
    (folder / "itself.yml").symlink_to(folder / "itself.yml")
    (folder / "deeper").symlink_to(folder)
    assert rules.store.follow(1) == []
    assert images(rules) == {A: "a.exe"}


def test_a_folder_that_goes_while_it_is_looked_at(folder, load, monkeypatch):
    (folder / "deep").mkdir()
    (folder / "deep" / "b.yml").write_text(rule(B, "b.exe"))
    rules = load()
    seen = os.scandir

    def scandir(path):
        if os.fspath(path).endswith("deep"):
            (folder / "deep" / "b.yml").unlink()
            (folder / "deep").rmdir()
        return seen(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert rules.store.follow(1) == []
    assert images(rules) == {A: "a.exe"}


@pytest.mark.parametrize("what", ["a.yml", "deep"])
def test_what_cannot_be_read_for_a_while_has_not_gone(folder, load, monkeypatch, what):
    (folder / "deep").mkdir()
    (folder / "deep" / "b.yml").write_text(rule(B, "b.exe"))
    rules = load()
    read, seen = pathlib.Path.read_bytes, os.scandir

    def refused(path):
        if os.fspath(path).endswith(what):
            raise PermissionError(13, "Permission denied", os.fspath(path))

    write(folder / "a.yml", rule(image="new.exe"))
    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "read_bytes", lambda path: refused(path) or read(path))
        patched.setattr(os, "scandir", lambda path: refused(path) or seen(path))
        with pytest.warns(RuleFilesWarning, match="cannot be read: .*Permission denied"):
            (entry,) = rules.store.follow(1)
        assert rules.store.follow(2) == []
    assert entry.event == "broken"
    assert images(rules) == {A: "a.exe", B: "b.exe"}
    rules.store.follow(3)
    assert images(rules) == {A: "new.exe", B: "b.exe"}
    assert rules.store.troubles == ()


def test_it_looks_no_more_often_than_asked(folder, load, time):
    rules = load("10 seconds")
    write(folder / "a.yml", rule(image="other.exe"))
    time.now += 9.0
    rules.store.follow(0)
    assert images(rules) == {A: "a.exe"}
    time.now += 1.0
    rules.store.follow(0)
    assert images(rules) == {A: "other.exe"}


def test_correlations_stay_as_they_were(folder, load):
    write(folder / "c.yml", CORRELATED)
    rules = load()
    write(folder / "a.yml", rule(image="other.exe"))
    assert rules.store.follow(0) == []
    assert images(rules) == {A: "other.exe"}
    write(folder / "c.yml", CORRELATED.replace("gte: 3", "gte: 4"))
    with pytest.warns(RuleFilesWarning, match="correlations change when the query is started anew"):
        rules.store.follow(0)
    assert len(rules.correlations) == 1


def test_what_can_be_watched(folder):
    assert every_s(True) == 1.0
    assert every_s("1 minute") == 60.0
    for given in ("soon", 5, None, "1 month"):
        with pytest.raises(OptionError, match="an interval such as '10 seconds'"):
            el.sigma.load(folder, watch=given)
    with pytest.raises(OptionError, match="watch '4000000 days' is too long; the longest time is"):
        el.sigma.load(folder, watch="4000000 days")
    with pytest.raises(OptionError, match="one folder or file"):
        el.sigma.load(rule(), watch=True)
    with pytest.raises(OptionError, match="one folder or file"):
        el.sigma.load([folder, folder], watch=True)
    with pytest.raises(SourceError, match=r"no file or folder .*gone; watch=True follows one that"):
        el.sigma.load(folder / "gone", watch=True)
    one = el.sigma.load(folder / "a.yml", watch="0 seconds")
    write(folder / "a.yml", rule(image="other.exe"))
    one.store.follow(0)
    assert images(one) == {A: "other.exe"}
    assert el.sigma.load(folder).store.follow(0) == []


@pytest.mark.large
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::eddyline.errors.RuleFilesWarning")
def test_a_run_has_the_rules_of_its_folder_from_batch_to_batch(spark, folder, tmp_path):
    names = ["a.exe", "b.exe", "c.exe"]
    (tmp_path / "in").mkdir()
    stream = spark.readStream.schema("Image string").parquet(str(tmp_path / "in"))

    def process():
        batch = pa.table({"Image": pa.array(names, pa.string())})
        n_before = run.to_arrow().num_rows if run.records else 0
        pq.write_table(batch, tmp_path / "in" / f"{next(SECONDS)}.parquet")
        run.process_all_available()
        return sorted(each["Image"] for each in run.to_arrow().slice(n_before).to_pylist())

    rules = el.sigma.load(folder, watch="0 seconds", cache=False, name="watched")
    with rules.start(stream, "memory", checkpoint=tmp_path / "ckpt") as run:
        assert process() == ["a.exe"]
        write(folder / "a.yml", rule(image="b.exe"))
        write(folder / "b.yml", rule(B, "c.exe"))
        assert process() == ["b.exe", "c.exe"]
        write(folder / "a.yml", "title: [")
        (folder / "b.yml").unlink()
        assert process() == ["b.exe"]
        assert "1 change of rule files not taken in" in run.records[-1].lines
        assert "not taken in: " in run.explain(width=500)
        assert process() == ["b.exe"]
        write(folder / "a.yml", rule(image="a.exe"))
        assert process() == ["a.exe"]
        assert not any("not taken in" in line for line in run.records[-1].lines)
    assert [each["event"] for each in run.journal].count("broken") == 1
    assert [each["event"] for each in run.journal].count("rules") == 3
