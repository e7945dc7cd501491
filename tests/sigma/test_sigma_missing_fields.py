"""Fields that rules ask for and events lack: told once, in ``info`` and by ``explain``."""

from __future__ import annotations

import warnings

import pytest

import eddyline as el
from eddyline.errors import MissingFieldsWarning
from eddyline.sigma.fields import likely_columns

A, B = "aaaaaaaa-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000000"


def rule(name, fields):
    tests = ", ".join(f"{field}: x" for field in fields)
    return (
        f"title: A rule\nid: {name}\nlogsource: {{product: windows}}\n"
        f"detection: {{s: {{{tests}}}, condition: s}}\n"
    )


def rules():
    return el.sigma.load(
        f"{rule(A, ['Image', 'CommandLine'])}---\n{rule(B, ['Image'])}", cache=False
    )


@pytest.fixture(scope="module")
def elastic(spark):
    return spark.createDataFrame([(("x", "x"),)], "process struct<executable:string,args:string>")


def test_rules_that_find_no_field_are_told_once(elastic):
    made = rules()
    assert "fields_missing" not in made.info[A]
    match = (
        r"none of 2 rules finds any of its fields.*Missing: Image \(2\), CommandLine \(1\); "
        r"a pipeline may map Image to process\.executable$"
    )
    with pytest.warns(MissingFieldsWarning, match=match):
        assert elastic.transform(made.matches()).count() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert elastic.transform(made.any()).count() == 0
        assert elastic.transform(made.count_by_rule()).count() == 0
    assert made.info[A]["fields_found"] == ()
    assert made.info[A]["fields_missing"] == ("Image", "CommandLine")
    assert "2 of 2 rules find none of their fields" in made.explain()


def test_some_fields_that_are_missing_are_in_info_and_explain_alone(spark):
    made = rules()
    events = spark.createDataFrame([("x",)], "COMMANDLINE string")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        events.transform(made.matches()).collect()
    assert made.info[A]["fields_found"] == ("CommandLine",)
    assert made.info[A]["fields_missing"] == made.info[B]["fields_missing"] == ("Image",)
    explained = " ".join(made.explain().split())
    assert "1 of 2 rules find none of their fields; the input lacks Image (2)" in explained


def test_rules_that_find_all_of_their_fields_say_nothing(spark):
    made = rules()
    events = spark.createDataFrame([("x", "x")], "Image string, CommandLine string")
    assert events.transform(made.matches()).count() == 1
    assert made.info[B]["fields_missing"] == ()
    assert "find none of their fields" not in made.explain()


@pytest.mark.parametrize("way", ["any", "count_by_rule", "split"])
def test_each_transform_tells_of_missing_fields(elastic, way):
    made = rules()
    with pytest.warns(MissingFieldsWarning, match="none of 2 rules"):
        made.split(elastic) if way == "split" else elastic.transform(getattr(made, way)())


def test_columns_that_fields_may_be_are_found_by_their_ends():
    columns = {
        "winlog": "struct<event_data:struct<Image:string,TargetUserName:string>>",
        "event": "struct<code:bigint>",
        "parent_image": "string",
    }
    fields = ["Image", "EventID", "targetusername", "ParentImage", "Hashes", ""]
    assert likely_columns(fields, columns) == {
        "Image": "winlog.event_data.Image",
        "EventID": "event.code",
        "targetusername": "winlog.event_data.TargetUserName",
        "ParentImage": "parent_image",
    }
