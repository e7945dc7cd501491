"""Kernels load numba when they are called, call one another, and are kept for later processes."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
import traceback
import warnings

import numpy as np
import pytest
from numba.core.errors import TypingError

from eddyline.change import adwin, martingale, meta
from eddyline.data import jit
from eddyline.data.jit import Kernel, compiled
from eddyline.state import run_index

FACTOR = 3


@compiled
def tripled(x: int) -> int:
    """Return three times a number."""
    return FACTOR * x


@compiled
def total(values: np.ndarray) -> int:
    """Return the sum of triples; calls another kernel."""
    found = 0
    for each in values:
        found += tripled(each)
    return found


@compiled
def factorial(n: int) -> int:
    """Return a factorial; calls itself."""
    return 1 if n < 2 else n * factorial(n - 1)


def test_a_kernel_calls_others_and_itself():
    assert total(np.arange(4)) == 18
    assert factorial(5) == 120
    assert tripled(2) == 6
    assert isinstance(tripled, Kernel)
    assert tripled.__doc__ == "Return three times a number."


def run(folder, code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, check=True, cwd=folder,
    )  # fmt: skip
    return done.stdout.split()


def test_machine_code_is_kept_and_numba_loaded_by_the_first_call(tmp_path):
    (tmp_path / "inner.py").write_text(
        "from eddyline.data.jit import compiled\n\n@compiled\ndef one(x):\n    return x + 1\n"
    )
    (tmp_path / "outer.py").write_text(
        "from eddyline.data.jit import compiled\nfrom inner import one\n\n"
        "@compiled\ndef two(x):\n    return one(one(x))\n"
    )
    code = """
        import sys
        from outer import two
        print("numba" in sys.modules, two(1), sum(two.dispatcher.stats.cache_hits.values()))
    """
    assert run(tmp_path, code) == ["False", "3", "0"]
    assert run(tmp_path, code) == ["False", "3", "1"]


def test_threads_that_need_numba_at_once_get_all_of_it(tmp_path):
    (tmp_path / "one.py").write_text(
        "from eddyline.data.jit import compiled\n\n@compiled\ndef one(x):\n    return x + 1\n"
    )
    code = """
        import sys
        import threading
        from eddyline.data import jit
        from one import one

        failed, start = [], threading.Barrier(8)

        def load(number):
            start.wait()
            try:
                if number % 2:
                    jit.load()
                else:
                    one(1)
            except BaseException as error:
                failed.append(repr(error))

        sys.setswitchinterval(1e-5)
        threads = [threading.Thread(target=load, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(len(failed), *failed[:1])
    """
    assert run(tmp_path, code) == ["0"]


def test_a_kernel_is_compiled_once_for_constants_and_other_numbers(tmp_path):
    (tmp_path / "calls.py").write_text(
        "from eddyline.data.jit import compiled\n\n@compiled\ndef doubled(x):\n    return 2 * x\n"
        "\n@compiled\ndef total(n):\n    found = doubled(0) + doubled(x=1)\n"
        "    for each in range(n):\n        found += doubled(each)\n    return found\n"
    )
    code = """
        from calls import doubled, total
        print(total(4), len(doubled.dispatcher.signatures))
    """
    assert run(tmp_path, code) == ["14", "1"]


@compiled
def scaled(values: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Multiply values in place and return them; it only reads the factors."""
    for place in range(len(values)):
        values[place] *= larger(factors, place)
    return values


@compiled
def larger(numbers: np.ndarray, place: int) -> int:
    """Return a number, at least 1."""
    return max(1, numbers[place]) if numbers.size else 1


@compiled
def cleared(table: np.ndarray) -> int:
    """Set the first row to zero by another name, and return the number of rows."""
    row = table[0]
    row[0] = 0
    return len(table)


@compiled
def put(values: np.ndarray, place: int) -> None:
    """Write to a part of an array; named by the caller as a part of a table."""
    values[place] = 0


@compiled
def cleared_below(table: np.ndarray) -> int:
    """Set the first of each row to zero by another kernel, and return the number of rows."""
    for row in table:
        put(row, 0)
    return len(table)


@compiled
def rest_of(values: np.ndarray) -> np.ndarray:
    """Return a view of all but the first."""
    return values[1:]


@compiled
def second_cleared(values: np.ndarray) -> np.ndarray:
    """Write by a view that another kernel returns."""
    rest = rest_of(values)
    rest[0] = 0
    return values


@compiled
def halvings(values: np.ndarray) -> int:
    """Return how often an array can be halved; calls itself with an array of its own."""
    return 1 + halvings(np.zeros(len(values) // 2)) if len(values) > 1 else 0


def read_only(values):
    values.flags.writeable = False
    return values


def test_a_kernel_that_only_reads_an_array_is_compiled_once_for_read_only_and_other_arrays():
    for kind in (np.int64, np.float64):
        for factors in ([2, 0], read_only(np.array([2, 0], kind))):
            values = np.array([3, 4], kind)
            assert scaled(values, np.asarray(factors, kind)).tolist() == [6, 4]
            assert values.tolist() == [6, 4]
    assert scaled.only_read == [False, True]
    assert len(scaled.dispatcher.signatures) == 2
    assert total(np.arange(4)) == total(read_only(np.arange(4))) == 18
    assert len(total.dispatcher.signatures) == 1


def test_a_kernel_that_writes_takes_no_read_only_array():
    with pytest.raises(TypingError, match="readonly array"):
        scaled(read_only(np.array([3, 4])), np.array([2, 0]))
    for kernel, wanted in (cleared, [[0, 1], [1, 1]]), (cleared_below, [[0, 1], [0, 1]]):
        table = np.ones((2, 2))
        assert kernel.only_read == [False]
        assert kernel(table) == 2
        assert table.tolist() == wanted
        with pytest.raises(TypingError, match="readonly array"):
            kernel(read_only(table))


def test_what_a_kernel_returns_of_a_writable_array_is_writable():
    values = np.ones(3)
    assert rest_of(values).flags.writeable
    assert not rest_of(read_only(np.ones(3))).flags.writeable
    assert second_cleared(values).tolist() == values.tolist() == [1, 0, 1]


def test_a_kernel_that_calls_itself_is_compiled_for_what_it_gets():
    assert halvings.only_read == [False]
    assert halvings(np.ones(8)) == 3


def test_a_function_without_a_definition_of_its_own_is_a_kernel():
    first = compiled(lambda values: values[0])
    assert first.only_read == [False]
    assert first(np.ones(2)) == 1


def test_what_kernels_of_the_rooms_write_to_is_seen_in_their_source():
    """A failed attempt would be made in each process, as numba keeps none."""
    assert not adwin._drop_oldest.only_read[0]
    assert meta.take.only_read == [True] * 2 + [False] * 4 + [True] * 2
    assert martingale.check.only_read == [True] * 3 + [False] * 4 + [True] * 5
    assert run_index.probe.only_read == [True] * 15 + [False] * 5, "found pairs are filled in"


def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path):
    (tmp_path / "calls.py").write_text(
        "from eddyline.data.jit import compiled\n\n@compiled\ndef doubled(x):\n    return 2 * x\n"
        "\n@compiled\ndef factorial(n):\n"
        "    return doubled(1) if n < 2 else n * factorial(n - 1)\n"
    )
    code = """
        import sys
        from calls import doubled, factorial
        factorial.dispatcher
        print("ready", flush=True)
        sys.stdin.readline()
        print(factorial(4), *(sum(each.dispatcher.stats.cache_misses.values())
                              for each in (doubled, factorial)))
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        )
        for _ in range(3)
    ]  # fmt: skip
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate()[0].split() for process in processes]
    assert [answer[0] for answer in answers] == ["48"] * 3
    assert sorted(answer[1:] for answer in answers) == [["0", "0"], ["0", "0"], ["1", "1"]]


def test_compiling_leaves_the_filters_of_warnings_alone(tmp_path, monkeypatch):
    # They are of the process: another thread may be about to warn.
    (tmp_path / "kernels_that_call.py").write_text(
        "from eddyline.data.jit import compiled\n\n@compiled\ndef doubled(x):\n    return 2 * x\n"
        "\n@compiled\ndef total(values):\n    n = 0\n    for value in values:\n"
        "        n += doubled(value)\n    return n\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    kernel = importlib.import_module("kernels_that_call").total
    jit.load()  # modules that numba imports late
    entered = []
    monkeypatch.setattr(
        warnings.catch_warnings,
        "__enter__",
        lambda self: entered.append("".join(traceback.format_stack(limit=9))),
    )
    monkeypatch.setattr(warnings.catch_warnings, "__exit__", lambda self, *_: None)
    assert kernel(np.arange(4)) == 12
    assert not entered
