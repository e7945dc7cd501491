"""What is known of rows that were dropped: never fewer of a key than there were, in little room."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.state import dropped_rows
from eddyline.state.cold_runs import AskedKeys
from eddyline.state.dropped_rows import MOST_SLICES, DroppedKeys, DroppedRows, Slice, alive, kept
from eddyline.state.rows import ALWAYS, FOREVER, Rows, SortedRun
from eddyline.state.run_index import hashes_of

FILES = fs.LocalFileSystem()


def run_of(codes, starts, length=1_000):
    codes, starts = np.asarray(codes, np.int64), np.asarray(starts, np.int64)
    ends = np.full(starts.size, FOREVER) if length == FOREVER else starts + length
    return SortedRun.from_rows(
        Rows({0: codes, 3: codes % 7}, starts, ends, pa.table({"at": starts}))
    )


def asked(codes):
    codes = np.asarray(codes, np.int64)
    return AskedKeys.from_hashes(hashes_of(codes), codes)


@given(
    parts=st.lists(st.lists(st.integers(-5, 40), min_size=1, max_size=60), min_size=1, max_size=6),
    most=st.sampled_from([3, 20, 1_000]),
)
def test_no_key_has_more_rows_than_is_said_and_lists_are_exact(parts, most):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dropped_rows, "MOST_LISTED", most)
        each = [DroppedKeys.from_run(run_of(codes, range(len(codes))), 0) for codes in parts]
        whole = DroppedKeys.together(each)
        truth, wanted = Counter(code for codes in parts for code in codes), [*range(-10, 50)]
        found = whole.counted(asked(wanted))
        said = dict(zip(wanted, found.most.tolist(), strict=True))
        assert all(said[code] >= truth[code] for code in wanted)
        assert max(truth.values()) <= whole.most
        passing = {wanted[at] for at in whole.filter.passing(asked(wanted)).tolist()}
        assert truth.keys() <= passing
        if len(truth) <= most:
            assert said == {code: truth[code] for code in wanted}
            newest = {
                code: max(at for codes in parts for at, c in enumerate(codes) if c == code)
                for code in truth
            }
            came = dict(zip(wanted, found.newest.tolist(), strict=True))
            assert came == {code: newest.get(code, ALWAYS) for code in wanted}


def test_estimates_of_a_crowded_sketch_are_not_biased():
    """Of 200,000 keys, of which a counter has six: bounds are far off, the mean estimate not."""
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 2**60, 200_000)
    sketch = DroppedKeys.together([DroppedKeys.from_run(run_of(codes, np.zeros(codes.size)), 0)])
    assert sketch.counters.size
    there, others = asked(codes[:20_000]), asked(rng.integers(0, 2**60, 20_000))
    assert abs(sketch.counted(there).about.mean() - 1) < 0.2
    assert abs(sketch.counted(others).about.mean()) < 0.2
    assert sketch.counted(others).most.mean() > 1


@pytest.mark.parametrize("length", [1_000, FOREVER])
def test_slices_are_few_and_go_with_their_windows(length, tmp_path):
    folder, files, every = str(tmp_path), (), []
    for number in range(60):
        codes, starts = np.arange(20) + 20 * number, np.arange(20) + 20 * number
        every.append((codes, starts))
        horizon = 20 * number + 300
        slices = [
            *alive(FILES, folder, files, horizon),
            Slice.from_run(run_of(codes, starts, length)),
        ]
        files = kept(FILES, folder, slices, horizon=horizon, length=length)
        assert 0 < len(files) <= MOST_SLICES
    known = DroppedRows(alive(FILES, folder, files, horizon))
    wanted, at = np.arange(1_200), np.full(1_200, horizon)
    found = known.counted({0: wanted, 3: wanted % 7}, at, at)
    alive_yet = np.ones(1_200, np.bool_) if length == FOREVER else wanted + length >= horizon
    assert (found.most[alive_yet] == 1).all()
    assert len(known.slices) <= MOST_SLICES
    if length < FOREVER:
        assert (found.most[wanted + 2 * length < horizon] == 0).all()
    assert known.most([0, 3]) >= 1


def test_slices_are_read_as_they_were_written_and_damage_is_found(tmp_path, monkeypatch):
    folder = str(tmp_path)
    rng = np.random.default_rng(1)
    for most in (10, 10_000):
        monkeypatch.setattr(dropped_rows, "MOST_LISTED", most)
        slice_ = Slice.from_run(run_of(rng.integers(0, 500, 2_000), np.arange(2_000)))
        (file,) = kept(FILES, folder, [slice_], horizon=0, length=1_000)
        again = Slice.read(FILES, folder, file)
        assert (again.n_rows, again.first_start, again.last_start) == (2_000, 0, 1_999)
        wanted = asked(np.arange(600))
        for key in (0, 3):
            before, after = (each.keys[key].counted(wanted) for each in (slice_, again))
            for one, other in zip(before, after, strict=True):
                assert (one == other).all()
            assert again.keys[key].most == slice_.keys[key].most
    path = tmp_path / f"{file.name}.dropped.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    monkeypatch.setattr(dropped_rows, "_READ", dropped_rows.ReadFiles(0))
    with pytest.raises(OSError, match="damaged"):
        Slice.read(FILES, folder, file)
