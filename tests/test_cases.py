"""Cases of large tests that CI draws."""

from __future__ import annotations

from dataclasses import dataclass

from tests.cases import drawn


@dataclass(frozen=True)
class Case:
    """A collected test as far as drawing looks at it."""

    nodeid: str
    markers: tuple[str, ...] = ("large",)

    def get_closest_marker(self, name):
        return name if name in self.markers else None


CASES = [
    *(Case(f"f.py::test_many[{number}]") for number in range(10)),
    Case("f.py::test_two[a]"),
    Case("f.py::test_two[b]"),
    Case("f.py::test_one"),
    *(Case(f"f.py::test_quick[{number}]", ()) for number in range(4)),
]


def test_each_large_test_keeps_a_third_of_its_cases_and_quick_ones_keep_all():
    kept = sorted(case.nodeid.partition("[")[0] for case in drawn(CASES, 3, "commit"))
    assert kept == [
        *["f.py::test_many"] * 4,
        "f.py::test_one",
        *["f.py::test_quick"] * 4,
        "f.py::test_two",
    ]


def test_all_cases_come_in_turn_and_a_commit_draws_the_same_ones_again():
    assert drawn(CASES, 3, "a") == drawn(CASES[::-1], 3, "a")
    assert set().union(*(drawn(CASES, 3, str(number)) for number in range(40))) == set(CASES)
    assert drawn(CASES, 1, "a") == set(CASES)


def test_cases_that_take_minutes_are_drawn_last():
    soaking = [Case(f"f.py::test[{number}]", ("large", "soak")) for number in range(8)]
    short = Case("f.py::test[short]")
    assert all(short in drawn([*soaking, short], 9, str(number)) for number in range(20))
