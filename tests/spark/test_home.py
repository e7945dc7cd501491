"""Spark's Python processes import pyspark's package, which has bytecode, and not its archive."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
import pytest

from eddyline.spark.home import unpacked_home

PACKAGE = Path(pyspark.__file__).resolve().parent


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path / "eddyline"


def test_the_archive_of_the_home_is_the_package_and_all_else_is_spark(cache):
    with unpacked_home():
        home = Path(os.environ["SPARK_HOME"])
        assert home.parent == cache
        assert (home / "python" / "lib" / "pyspark.zip" / "pyspark").resolve() == PACKAGE
        assert (home / "jars").resolve() == PACKAGE / "jars"
        assert (home / "bin" / "spark-submit").is_file()
    assert "SPARK_HOME" not in os.environ
    assert [entry.name for entry in cache.iterdir()] == [home.name]


def test_the_home_is_made_once_and_made_again_where_it_is_broken(cache):
    with unpacked_home():
        home = Path(os.environ["SPARK_HOME"])
    made = home.stat().st_ino
    with unpacked_home():
        assert home.stat().st_ino == made
    (home / "python" / "lib" / "pyspark.zip" / "pyspark").unlink()
    with unpacked_home():
        assert (home / "python" / "lib" / "pyspark.zip" / "pyspark" / "worker.py").is_file()


def test_a_home_of_the_environment_stays(monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with unpacked_home():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_without_a_place_for_it_spark_starts_as_installed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with unpacked_home():
        assert "SPARK_HOME" not in os.environ
