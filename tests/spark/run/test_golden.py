"""What people read of each query kind is what it was before the structure changed."""

from __future__ import annotations

import pytest

from tests.spark.run.golden import FOLDER, golden
from tests.spark.run.lives import KINDS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.soak,  # a run of each kind, four batches each: two minutes on two idle cores
    pytest.mark.filterwarnings("ignore:.* came too late"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_people_read_the_same_lines_of_a_run(spark, tmp_path, kind):
    expected = (FOLDER / f"{kind}.txt").read_text("utf-8").splitlines()
    lines = set(golden(kind, spark, tmp_path).splitlines())
    assert [line for line in expected if line not in lines] == []
