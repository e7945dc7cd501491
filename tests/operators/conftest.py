"""Queries over the streams of the operator that only tests know."""

from __future__ import annotations

import functools

import pytest

from tests.operators import newest_queries


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("newest")
    newest_queries.write(made, newest_queries.N_BATCHES)
    return made


@pytest.fixture
def query(spark, folder):
    return functools.partial(newest_queries.query_over, spark, folder)
