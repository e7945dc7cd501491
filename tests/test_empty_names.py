"""Empty names are counted, and a room may not get more of them."""

from __future__ import annotations

from tools.check_names import count_by_room, empty_names, problems

TEXT = """
class Rows:
    @classmethod
    def of(cls, given, n_rows):
        found = [each for each in given]
        with open(n_rows) as left, open(found.at):
            total = left
        for row, at in found:
            own: int = row
        return {known: 1 for known in found if (made := known)}
"""


def test_variables_parameters_and_classmethods_count_and_attributes_do_not():
    assert sorted(name for _, name in empty_names(TEXT)) == [
        "at", "each", "found", "given", "known", "left", "made", "of", "own",
    ]  # fmt: skip


def test_left_beside_right_is_a_side_and_left_alone_says_nothing():
    sides = "def joined(left, right):\n    return left + right\n"
    assert list(empty_names(sides)) == []
    assert list(empty_names(f"{sides}def rest(rows):\n    left = rows[1:]\n")) == [(4, "left")]


def test_a_room_may_have_as_many_as_before_and_a_new_room_none(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.py").write_text(TEXT)
    (tmp_path / "cli.py").write_text("found = 1")
    counts = count_by_room(tmp_path)
    assert counts == {"data": 9, "eddyline": 1}
    assert problems(counts, {"data": 9, "eddyline": 2}) == []
    (line,) = problems(counts, {"data": 9})
    assert line.startswith("eddyline binds 1 empty names and may bind 0: ")
