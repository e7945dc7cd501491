"""The checkpoint of each format, as it was written: this version reads it, or says how to move.

A new format is a new folder beside ``format_1``; old folders are never written again.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from eddyline.care.doctor import check_checkpoint
from eddyline.report.stored import read_run
from eddyline.runtime.checkpoint import FORMAT, read_format, write_format
from eddyline.runtime.records import n_batches

KEPT = sorted(Path(__file__).parent.glob("format_*"))


@pytest.fixture(params=KEPT, ids=lambda each: each.name)
def kept(request, tmp_path):
    return Path(shutil.copytree(request.param, tmp_path / "ckpt"))


def test_this_format_is_kept():
    assert KEPT[-1].name == f"format_{FORMAT}"


def test_history_is_read(kept):
    run = read_run(kept)
    assert (run.query, run.status, n_batches(run.batches)) == ("q", "failed", 2)
    assert [entry.event for entry in run.journal] == ["order", "grid"]
    assert sum(batch.operators[1].sums["n_results"] for batch in run.batches) == 10
    assert run.sections[0]["title"] == "groups"


def test_what_cannot_be_read_says_how_to_move(kept):
    for found in check_checkpoint(kept):
        if found.level == "error":
            assert re.search("go on with the version that wrote it", found.said)


def test_it_becomes_one_of_this_format(kept):
    write_format(kept / "eddyline")
    assert read_format(kept / "eddyline").format == FORMAT
