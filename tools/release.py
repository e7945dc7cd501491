"""Build the package as it is published, and check it: ``make release``.

Wheel and source archive are built, checked for what must and what must not be in them, and the
wheel is installed without the checkout into a clean environment. The first pages run there.
Nothing is uploaded. The first check that fails ends it with exit code 1.

``make release-pairs`` tries the first pages with each Python that is found and each PySpark, with
the wheel and with the source archive, and prints a table.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools import snippets

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PAGES = ("README.md", "docs/tour.md")
"""Pages that a user tries first."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PYSPARKS = ("4.1", "4.2", "4.3")
"""Versions that are tried, as far as they are found and can be installed."""
EXTRAS = "report,sigma"
"""Extras that these pages need."""
BESIDE = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md"}
BESIDE |= {".gitignore", "pyproject.toml"}
"""Files of the source archive besides the package and its pages."""


class ReleaseError(Exception):
    """What is wrong with the release, and where."""


def versions() -> dict[str, str]:
    """Return the version as each file that has it says."""
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    code = ast.parse((ROOT / "src/eddyline/__init__.py").read_text("utf-8"))
    return {
        "CHANGELOG.md, newest heading": first(r"(?m)^## (\S+)", changelog),
        "pyproject.toml": tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
            "version"
        ],
        "eddyline.__version__": next(
            ast.literal_eval(node.value)
            for node in code.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
        ),
        "CITATION.cff": first(r"(?m)^version: (\S+)", citation),
    }


def first(pattern: str, text: str) -> str:
    """Return what the first match of a pattern holds, or a word that says there is none."""
    found = re.search(pattern, text)
    return found[1] if found else "none"


def check_versions() -> str:
    """Return the version, which all files have to agree on.

    Raises:
        ReleaseError: they do not.
    """
    said = versions()
    if len(set(said.values())) > 1:
        told = ", ".join(f"{where}: {version}" for where, version in said.items())
        msg = f"the changelog says which version this is, and all have to agree; got {told}"
        raise ReleaseError(msg)
    return next(iter(said.values()))


def tracked(folder: str) -> set[str]:
    """Return the files below a folder that belong to the project."""
    named = ["git", "-C", str(ROOT), "ls-files", "-z", folder]
    done = subprocess.run(named, check=True, capture_output=True, text=True)
    return {each for each in done.stdout.split("\0") if each}


def check_wheel(names: Iterable[str]) -> None:
    """Check that a wheel has the package, all of it and nothing else, and the licence.

    Raises:
        ReleaseError: something is missing, or too much.
    """
    package = {each.removeprefix("src/") for each in tracked("src/eddyline")}
    about = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    check_equal("the wheel", set(names) - about, package)
    if not any(name.endswith("/licenses/LICENSE") for name in about):
        msg = "the wheel has no LICENSE"
        raise ReleaseError(msg)


def check_archive(names: Iterable[str]) -> None:
    """Check that a source archive has package and pages, and no tests with their data.

    Raises:
        ReleaseError: something is missing, or too much.
    """
    found = {name.partition("/")[2] for name in names}
    check_equal("the source archive", found, tracked("src") | tracked("docs") | BESIDE)


def check_equal(what: str, found: set[str], expected: set[str]) -> None:
    """Check that an archive has exactly the files that it should have.

    Raises:
        ReleaseError: it has not; the first few are named.
    """
    wrong = {"lacks": sorted(expected - found)[:5], "should not have": sorted(found - expected)[:5]}
    if any(wrong.values()):
        told = "; ".join(
            f"{what} {how} {', '.join(names)}" for how, names in wrong.items() if names
        )
        raise ReleaseError(told)


def run(*command: object, **more: str) -> None:
    """Run a command that has to succeed; it may say what it does."""
    subprocess.run([str(each) for each in command], check=True, env={**os.environ, **more})


def build() -> tuple[Path, Path]:
    """Build wheel and source archive, and return them; what stood there before is removed."""
    for old in DIST.glob("eddyline-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (wheel,), (archive,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, archive)
    check_wheel(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(archive) as opened:
        check_archive(each.name for each in opened.getmembers() if each.isfile())
    return wheel, archive


def try_pages(package: Path, place: Path, python: str = sys.executable, pyspark: str = "") -> None:
    """Run the snippets of ``PAGES`` with a package, and nothing of the checkout.

    Args:
        package: the wheel or the source archive.
        place: an empty folder.
        python: the interpreter of the environment that is made.
        pyspark: a version such as ``4.1``; the tested one if empty.

    Raises:
        ReleaseError: they do not run; with the end of what they said.
    """
    run(python, "-m", "venv", place / "env")
    inside = place / "env" / "bin" / "python"
    quiet = ("--quiet", "--disable-pip-version-check")
    constraints = (ROOT / "constraints.txt").read_text("utf-8")
    if pyspark:
        constraints = re.sub(r"(?m)^pyspark==.*$", f"pyspark=={pyspark}.*", constraints)
    (place / "constraints.txt").write_text(constraints, "utf-8")
    needs = ("--constraint", place / "constraints.txt", f"{package}[{EXTRAS}]")
    run(inside, "-m", "pip", "install", *quiet, *needs)
    for page in PAGES:
        (folder := place / Path(page).stem).mkdir()
        done = snippets.run(ROOT / page, str(inside), folder)
        if done.returncode != 0:
            msg = f"{page} does not run with {package.name}:\n{done.stderr[-4000:]}"
            raise ReleaseError(msg)


def try_pairs(packages: Iterable[Path]) -> int:
    """Try the pages with each Python and PySpark; prints a line for each, returns the exit code."""
    failed = 0
    for version in PYTHONS:
        python = shutil.which(f"python{version}")
        if python is None:
            print(f"Python {version}: not found here, so not tried", flush=True)
            continue
        for pyspark in PYSPARKS:
            for package in packages:
                with tempfile.TemporaryDirectory(prefix="eddyline-release-") as place:
                    try:
                        try_pages(package, Path(place), python, pyspark)
                        outcome = "the pages run"
                    except (ReleaseError, subprocess.CalledProcessError) as error:
                        failed, outcome = 1, f"FAILED: {error}"
                kind = "wheel" if package.suffix == ".whl" else "source archive"
                print(f"Python {version}, PySpark {pyspark}, {kind}: {outcome}", flush=True)
    return failed


def main() -> int:
    """Build and check a release; says what it does, and returns the exit code."""
    try:
        version = check_versions()
        print(f"eddyline {version}")
        made = build()
        if "--pairs" in sys.argv[1:]:
            return try_pairs(made)
        print("Installing the wheel into a clean environment, and running pages there ...")
        with tempfile.TemporaryDirectory(prefix="eddyline-release-") as place:
            try_pages(made[0], Path(place))
    except (ReleaseError, subprocess.CalledProcessError) as error:
        print(error)
        return 1
    print("\n".join(f"{each.relative_to(ROOT)}: {each.stat().st_size:,} bytes" for each in made))
    heading = first(r"(?m)^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"))
    if "unreleased" in heading:
        print(f"Not to be published yet: CHANGELOG.md says {heading!r}; put the date there first.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
