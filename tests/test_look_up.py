from __future__ import annotations

import sys

import pytest

from eddyline.errors import OptionError, PluginError
from eddyline.filters.loop import FilterLoop
from eddyline.options import FilterOptions
from eddyline.registry import look_up, unknown

TABLE = {"a_greedy": 1, "sweep": 2}
GROUP = "eddyline.ordering"


def find(name, table=TABLE):
    return look_up("ordering policy", table, name, group=GROUP)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a distribution with one module and one entry point on the path."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(package, entry, code, group=GROUP):
        folder = tmp_path / f"{package}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        (tmp_path / f"{package}_code.py").write_text(code)

    yield install
    for name in [each for each in sys.modules if each.endswith("_code")]:
        del sys.modules[name]


def test_an_entry_of_the_table():
    assert find("sweep") == 2


def test_an_unknown_name_lists_what_is_known():
    with pytest.raises(OptionError) as caught:
        find("a-greedy")
    assert caught.value.message == (
        "unknown ordering policy 'a-greedy'; known: a_greedy, sweep; did you mean 'a_greedy'?"
    )
    assert caught.value.facts == {"name": "a-greedy", "known": ["a_greedy", "sweep"]}


def test_a_name_like_no_other_has_no_hint():
    assert unknown("sink", "xyzzy", ["memory"]) == "unknown sink 'xyzzy'; known: memory"


def test_another_package_adds_an_entry(install):
    install("lookahead", "lookahead = lookahead_code:Options", "class Options: stage = 7")
    assert find("lookahead").stage == 7


def test_entries_of_other_packages_are_listed_and_hinted_at(install):
    install("lookahead", "lookahead = lookahead_code:Options", "class Options: pass")
    with pytest.raises(OptionError, match="lookahead, sweep; did you mean 'lookahead'"):
        find("lookahed")


def test_the_table_comes_before_other_packages(install):
    install("thief", "sweep = thief_code:Options", "raise SystemError")
    assert find("sweep") == 2


def test_entries_of_another_group_are_not_seen(install):
    install("sinks", "lookahead = sinks_code:x", "x = 1", group="eddyline.sinks")
    with pytest.raises(OptionError):
        find("lookahead")


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("x = 1", "AttributeError"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_a_package_that_fails_to_load_is_named_with_the_cause(install, code, cause):
    install("shaky", "lookahead = shaky_code:Options", code)
    with pytest.raises(PluginError, match=r"'lookahead' of shaky failed to load") as caught:
        find("lookahead")
    assert cause in caught.value.message
    assert caught.value.facts == {"name": "lookahead", "package": "shaky"}
    assert type(caught.value.__cause__).__name__ in cause


def test_a_policy_of_another_package_orders_a_conjunction(install):
    install("still", "still = still_code:Options", "from eddyline.ordering import protocol\n"
            "class Options(protocol.FixedOptions): pass")  # fmt: skip
    loop = FilterLoop("arrow", ("a", "b"), FilterOptions(policy="still"))
    assert type(loop.policy).__name__ == "Fixed"


def test_of_very_many_names_the_first_and_the_closest_are_shown():
    said = unknown("rule", "rule 1181x", [f"rule {number}" for number in range(1_183)])
    assert said.startswith("unknown rule 'rule 1181x'; known: rule 0, rule 1, ")
    assert "rule 19 and 1,163 more; did you mean 'rule 1181'?" in said
    assert len(said) < 300
