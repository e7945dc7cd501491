from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from eddyline.errors import QueryError, StateError
from eddyline.runtime.checkpoint import FolderLock, held_locks

HOLD = """
import sys, time
from pathlib import Path
from eddyline.runtime.checkpoint import FolderLock
lock = FolderLock(Path(sys.argv[1]), "other", "checkpoint", "ckpt")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "lock"
    for each in held_locks():
        each.release()


def locked(path, query="mine"):
    return FolderLock(path, query, "checkpoint", "ckpt")


@pytest.fixture
def other(path):
    """Another process, which has the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_told_who_has_the_folder(path, other):
    host = socket.gethostname()
    says = rf"ckpt is in use by query 'other' in process {other.pid} on {host} since \d{{4}}-"
    with pytest.raises(StateError, match=says) as caught:
        locked(path)
    assert caught.value.facts["owner"]["process"] == other.pid
    assert not held_locks()


def test_a_process_that_was_killed_does_not_keep_the_folder(path, other):
    other.kill()
    other.wait()
    assert "other" in path.read_text(), "it had no time to tidy up"
    lock = locked(path)
    assert json.loads(path.read_text())["process"] == os.getpid()
    lock.release()
    assert path.read_text() == ""


def test_a_second_run_of_the_process_is_refused_until_the_first_ends(path):
    first = locked(path)
    with pytest.raises(QueryError, match="run 'mine' writes to the checkpoint ckpt; stop it first"):
        locked(path, "second")
    first.has_ended = lambda: True  # nobody has waited for its end
    second = locked(path, "second")
    first.release()
    with pytest.raises(QueryError, match="run 'second'"):
        locked(path)
    second.release()
    second.release()
    locked(path).release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_process_that_was_forked_does_not_keep_the_folder(path):
    lock = locked(path)
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"1")
        os.read(done[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        lock.release()
        locked(path).release()
    finally:
        os.write(done[1], b"1")
        os.waitpid(child, 0)
        for handle in (*ready, *done):
            os.close(handle)


def test_programs_that_the_process_starts_do_not_keep_the_folder(path):
    lock = locked(path)
    program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, close_fds=False) as process:
        lock.release()
        locked(path).release()
        process.communicate()


def test_one_of_many_threads_gets_the_folder(path):
    start, got, refused = threading.Barrier(8), [], []

    def take():
        start.wait()
        try:
            got.append(locked(path))
        except (QueryError, StateError) as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (len(got), len(refused)) == (1, 7)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(StateError, match=r"cannot lock the checkpoint ckpt by .*free space"):
        locked(tmp_path / "nowhere" / "lock")
