"""Which events a rule meets, and fields that it asks for and events lack."""

from __future__ import annotations

import warnings

import pytest

import eddyline as el
from eddyline.errors import MissingFieldsWarning, QueryError
from eddyline.sigma import read
from eddyline.sigma.fields import CATEGORIES, SERVICES, LogSource, likely_columns, said
from tests.oracles.rules import truth

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


@pytest.mark.large
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


RULE = """\
title: t
logsource: {source}
detection: {{s: {{F: x}}, condition: s}}
"""
SYSMON = "Microsoft-Windows-Sysmon/Operational"
WHOLE = {"Channel": "string", "EventID": "bigint", "F": "string"}


@pytest.fixture
def fires(oracle_row):
    def fires(source, events, columns=None, **options):
        known = columns or WHOLE
        rule = read(RULE.format(source=source), cache=False, **options).sources[0]
        tree = rule.bind(known, ansi=True).tree
        rows = (dict.fromkeys(known) | {"F": "x"} | event for event in events)
        return [truth(tree, oracle_row(tree, row)) for row in rows]

    return fires


CREATION = "{product: windows, category: process_creation}"
EVENTS = [
    {"Channel": SYSMON, "EventID": 1},
    {"Channel": SYSMON.upper(), "EventID": 1},
    {"Channel": "security", "EventID": 4688},
    {"Channel": "Security", "EventID": 1},
    {"Channel": SYSMON, "EventID": 11},
    {"Channel": SYSMON},
    {"EventID": 1},
]


def test_a_category_is_channels_and_ids(fires):
    expected = [True, True, True, False, False, None, None]
    assert fires(CREATION, EVENTS) == expected
    assert fires(CREATION, EVENTS, restrict=True) == expected
    assert fires(CREATION, EVENTS, restrict=False) == [True] * 7


def test_ids_may_be_texts_and_names_those_of_other_shippers(fires):
    columns = {"winlog.channel": "string", "winlog.event_id": "string", "F": "string"}
    events = [
        {"winlog.channel": SYSMON, "winlog.event_id": "1"},
        {"winlog.channel": SYSMON, "winlog.event_id": "11"},
    ]
    assert fires(CREATION, events, columns, restrict=True) == [True, False]


def test_only_what_the_events_carry_restricts(fires):
    ids = {"EventID": "int", "F": "string"}
    assert fires(CREATION, [{"EventID": 4688}, {"EventID": 2}], ids) == [True, False]
    channels = {"Channel": "string", "F": "string"}
    events = [{"Channel": "Security"}, {"Channel": "System"}]
    assert fires(CREATION, events, channels) == [True, False]
    assert fires(CREATION, [{}], {"F": "string"}) == [True]


def test_events_that_do_not_tell_are_an_error_if_demanded(fires):
    for columns, what in (
        ({"F": "string"}, "channel"),
        ({"F": "string", "Channel": "string"}, "id"),
    ):
        with pytest.raises(QueryError, match=f"asks for the (event )?{what}"):
            fires(CREATION, [{}], columns, restrict=True)
    service = "{product: windows, service: security}"
    columns = {"F": "string", "Channel": "string"}
    assert fires(service, [{"Channel": "SECURITY"}], columns, restrict=True) == [True]


def test_a_service_is_a_channel(fires):
    events = [{"Channel": "Security", "EventID": 7}, {"Channel": "System", "EventID": 7}]
    assert fires("{product: windows, service: security}", events) == [True, False]
    both = "{product: windows, service: sysmon, category: process_creation}"
    assert fires(both, EVENTS)[:4] == [True, True, False, False]


@pytest.mark.parametrize(
    "source",
    [
        "{product: linux, category: process_creation}",
        "{category: proxy}",
        "{product: windows}",
        "{product: windows, service: unheard-of}",
        "{category: process_creation}",
    ],
)
def test_an_unknown_log_source_restricts_nothing(fires, source):
    assert fires(source, EVENTS) == [True] * len(EVENTS)


def test_the_tables_are_well_formed():
    for name, wanted in CATEGORIES.items():
        assert name == name.lower()
        assert all(each.channels and each.ids for each in wanted)
        assert said(LogSource(name, "windows"))
    for name, channels in SERVICES.items():
        assert name == name.lower()
        assert channels
        assert said(LogSource(service=name, product="Windows"))
    # A service whose channel a category is in narrows it; another one stands for itself.
    assert LogSource("ps_script", "windows", "sysmon").events[0].ids == ()
