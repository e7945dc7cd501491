"""Named rules that change: all of what is added or none, and what does not run is told."""

from __future__ import annotations

import pytest

from eddyline.errors import OptionError, QueryError
from eddyline.options import SharingOptions
from eddyline.query.conditions import SkippedRule
from eddyline.query.rules.sources import SqlRule
from eddyline.rules.description import entries_of, to_come
from eddyline.rules.store import RuleStore


def made(rules=(), on_error="raise", **given):
    store = RuleStore("alerts", SharingOptions(), {}, on_error, **given)
    store.add(dict(rules))
    return store


def texts(store):
    return {name: each.text for name, each in store.now()[1].items()}


def unfit(rules, skips):
    """What a run would say whose stream has no column zzz."""
    wrong = [each for each in rules if "zzz" in each.text]
    if wrong and not skips:
        raise QueryError(f"rule {wrong[0].name!r}: no zzz")
    return [SkippedRule(each.name, "no zzz", each.text) for each in wrong]


def test_each_change_is_another_version():
    store = made({"a": "n > 1"})
    versions = [store.now()[0]]
    for change in (
        lambda: store.add({"b": "n > 2"}),
        lambda: store.replace("a", "n > 3"),
        lambda: store.remove(["b"]),
    ):
        change()
        versions.append(store.now()[0])
    assert versions == sorted({*versions})
    assert texts(store) == {"a": "n > 3"}
    store.add_rules({}, [SkippedRule("bad", "unread")])
    assert store.now()[0] == versions[-1]  # nothing runs otherwise than before


def test_what_was_handed_out_does_not_change():
    store = made({"a": "n > 1"})
    _, before = store.now()
    store.remove(["a"])
    assert list(before) == ["a"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda store: store.add({"new": "n = 1", "a": "n = 2"}), "rule 'a' exists already"),
        (lambda store: store.add({"new": "n = 1", "bad": "n > ((("}), "rule 'bad'"),
        (lambda store: store.add({"new": "n = 1", "unfit": "zzz = 1"}), "rule 'unfit'"),
        (lambda store: store.add({"": "n = 1"}), "named by a text that is not empty"),
        (lambda store: store.remove(["a", "b"]), "unknown rule 'b'"),
        (lambda store: store.replace("b", "n = 2"), "unknown rule 'b'"),
        (lambda store: store.replace("a", "n > ((("), "rule 'a'"),
        (lambda store: store.replace("a", "zzz = 1"), "rule 'a'"),
        (
            lambda store: store.replace_rules({}, [SkippedRule("a", "unread")]),
            "rule 'a' is not replaced",
        ),
    ],
)
def test_what_is_refused_changes_nothing(change, why):
    store = made({"a": "n > 1"}, unfit=unfit)
    before = store.now()
    with pytest.raises(QueryError, match=why):
        change(store)
    assert store.now() == before
    assert store.skipped({}, ()) == ()


def test_with_skip_the_others_are_added():
    store = made({"a": "n > 1", "bad": "n > (((", "unfit": "zzz = 1"}, "skip", unfit=unfit)
    assert list(texts(store)) == ["a", "unfit"]
    assert [each.name for each in store.skipped({}, ())] == ["bad", "unfit"]
    for replaced in ("bad", "unfit"):
        store.replace(replaced, "n = 7")
    assert store.skipped({}, ()) == ()
    store.add({"later": "n > ((("})
    store.remove(["later"])
    assert store.skipped({}, ()) == ()
    with pytest.raises(OptionError, match="on_error"):
        made(on_error="ignore")


def test_what_a_run_refused_counts_as_long_as_the_rule_is_the_same():
    store = made({"a": "n > 1", "b": "n > 2"})
    _, met = store.now()
    refused = [SkippedRule("a", "why"), SkippedRule("b", "why")]
    assert store.skipped(met, refused) == tuple(refused)
    store.replace("a", "n > 3")
    store.remove(["b"])
    assert store.skipped(met, refused) == ()


def rule(text):
    return SqlRule("any", text)


def test_changes_in_words_and_as_an_entry():
    kept, old, new = rule("n = 1"), rule("n = 2"), rule("n = 3")
    before, after = {"kept": kept, "a": old, "b": old}, {"kept": kept, "a": new, "c": new}
    assert to_come(before, after) == (
        "1 rule added, 1 removed, 1 replaced since: they count from the next micro-batch or "
        "transform on",
    )
    assert to_come(before, before) == ()
    (entry,) = entries_of(before, after, ["d"], 4)
    assert (entry.batch_id, entry.event) == (4, "rules")
    assert (entry.before, entry.after) == ("3 rules", "3 rules")
    assert entry.evidence == {
        "added": ["c"],
        "removed": ["b"],
        "replaced": ["a"],
        "skipped": ["d"],
    }
    assert entries_of(before, before, [], 4) == []
