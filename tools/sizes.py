#!/usr/bin/env python
"""Print how large the house is: `make sizes`.

Counts are of `src/` and `tests/` as they lie there; seconds are those of the last run here. With
`--traced`, a WHERE and a join run over a few small batches, and the classes and functions of
eddyline that a batch enters are counted.
"""

from __future__ import annotations

import argparse
import ast
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMALL = 80
"""Lines below which a file is small."""


def files_of(folder: str) -> list[Path]:
    """Return the Python files of a folder."""
    return sorted((ROOT / folder).rglob("*.py"))


def n_lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text("utf-8").splitlines())


def head_lines(path: Path) -> int:
    """Return the lines of a file before its first definition: docstring and imports."""
    tree = ast.parse(path.read_text("utf-8"))
    last = 0
    for node in tree.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if not (is_text or is_typing or isinstance(node, (ast.Import, ast.ImportFrom))):
            break
        last = node.end_lineno or last
    return last


def definitions(kind: type[ast.AST]) -> list[tuple[Path, ast.AST]]:
    """Return the nodes of a kind at the top of the files of `src/`."""
    return [
        (path, node)
        for path in files_of("src")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, kind)
    ]


def is_numeric(node: ast.expr | None) -> bool:
    """Return whether a value is a number, or numbers that are calculated or listed."""
    if node is None:
        return False
    leaves = [leaf for leaf in ast.walk(node) if isinstance(leaf, (ast.Constant, ast.Name))]
    return bool(leaves) and all(
        isinstance(leaf, ast.Constant)
        and isinstance(leaf.value, (int, float))
        and not isinstance(leaf.value, bool)
        for leaf in leaves
    )


def n_constants() -> int:
    """Return the names of numbers at the top of files, options left out."""
    count = 0
    for path, node in definitions(ast.Assign) + definitions(ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
        names = [name.id for name in ast.walk(targets[0]) if isinstance(name, ast.Name)]
        if path.name != "options.py" and is_numeric(node.value):  # type: ignore[attr-defined]
            count += sum(name.isupper() for name in names)
    return count


def static_sizes() -> dict[str, object]:
    """Return what is counted without running anything."""
    sources = files_of("src")
    lines = {path: n_lines(path) for path in sources}
    heads = sum(map(head_lines, sources))
    classes = [node.name for _, node in definitions(ast.ClassDef)]  # type: ignore[attr-defined]
    methods = [
        node.name
        for path in sources
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name in ("snapshot", "restore")
    ]
    return {
        "lines of src": sum(lines.values()),
        "files of src": len(sources),
        "of these lines, heads": f"{heads} ({heads / sum(lines.values()):.1%})",
        f"files under {SMALL} lines": sum(count < SMALL for count in lines.values()),
        "classes": len(classes),
        "loop classes": sum(name.endswith("Loop") for name in classes),
        "numeric constants outside options": n_constants(),
        "snapshot methods": methods.count("snapshot"),
        "restore methods": methods.count("restore"),
        "lines of tests": sum(map(n_lines, files_of("tests"))),
        "files of tests": len(files_of("tests")),
        **last_seconds(),
    }


def last_seconds() -> dict[str, object]:
    """Return how long the last runs of tests took, as `tools/timed.sh` has noted it (s)."""
    folder = ROOT / "build" / "seconds"
    names = ("make test", "make test-large", "make test-all", ".ci/run")
    noted = {name: folder / name.replace("/", "-") for name in names}
    return {
        f"seconds of the last {name}": path.read_text("utf-8").strip()
        for name, path in noted.items()
        if path.exists()
    }


class Entered:
    """Notes the classes and functions of eddyline that are entered in any thread."""

    def __init__(self) -> None:
        self.classes: set[str] = set()
        self.functions: set[str] = set()

    def __call__(self, frame: object, event: str, argument: object) -> None:  # noqa: ARG002
        """Note a call; see ``sys.setprofile``."""
        code = frame.f_code  # type: ignore[attr-defined]
        if event == "call" and "/eddyline/" in code.co_filename:
            self.functions.add(f"{code.co_filename}:{code.co_qualname}")
            owner = frame.f_locals.get("self")  # type: ignore[attr-defined]
            if owner is not None and type(owner).__module__.startswith("eddyline"):
                self.classes.add(type(owner).__qualname__)


def traced_sizes() -> dict[str, object]:
    """Return the classes and functions that a batch of a WHERE and of a join enters on the driver.

    The first batches make what is kept; the batch that is counted is the last of five.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    import eddyline as el  # noqa: PLC0415
    from eddyline.spark.session import session  # noqa: PLC0415

    queries = {
        "WHERE": "SELECT k FROM s WHERE k > 3 AND k % 7 <> 3",
        "join": "SELECT s.k FROM s [RANGE 9 SECONDS], t [RANGE 9 SECONDS] WHERE s.k = t.k",
    }
    found: dict[str, object] = {}
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in queries.items():
            engine = el.Engine(spark)
            rows = pa.table(
                {"k": range(100), "ts": pa.array(range(100), pa.timestamp("us", "UTC"))}
            )
            for stream in "st":
                (Path(folder) / name / stream).mkdir(parents=True)
                frame = spark.readStream.schema("k BIGINT, ts TIMESTAMP")
                source = frame.parquet(f"{folder}/{name}/{stream}")
                engine.stream(stream, source, time="ts", lateness="1 second")
            query = engine.query(text, name=name)
            entered = Entered()
            threading.setprofile(entered)  # of the threads that the run starts
            with query.start("memory", trigger="0 seconds") as run:
                for number in range(5):
                    entered.classes.clear()
                    entered.functions.clear()
                    for stream in "st":
                        pq.write_table(rows, f"{folder}/{name}/{stream}/{number}.parquet")
                    run.process_all_available()
            threading.setprofile(None)
            found[f"classes that a batch of a {name} enters"] = len(entered.classes)
            found[f"functions that a batch of a {name} enters"] = len(entered.functions)
    spark.stop()
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traced", action="store_true", help="run a WHERE and a join, too")
    sizes = static_sizes()
    if parser.parse_args().traced:
        sizes |= traced_sizes()
    width = max(map(len, sizes))
    for name, value in sizes.items():
        print(f"{name:<{width}}  {value:>14}")


if __name__ == "__main__":
    main()
