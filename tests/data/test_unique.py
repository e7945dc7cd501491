from __future__ import annotations

import numpy as np
import pytest

from eddyline.data.arrays import distinct


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("values", [[], [5], [3, 1, 3, 2, 1], [0] * 9])
def test_distinct_numbers_ascend_and_keep_their_type(kind, values):
    given = np.array(values, kind)
    given.flags.writeable = False
    found = distinct(given)
    assert found.dtype == kind
    assert found.tolist() == sorted(set(values))


def test_all_bits_count():
    most = np.iinfo(np.uint64).max
    given = np.array([most, 0, most - 1, most], np.uint64)
    assert distinct(given).tolist() == [0, most - 1, most]
