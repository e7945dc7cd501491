"""Which events a rule meets: by channel and id, as far as the events tell them."""

from __future__ import annotations

import pytest

from eddyline.errors import QueryError
from eddyline.sigma import read
from eddyline.sigma.fields import CATEGORIES, SERVICES, LogSource, said
from tests.oracles.rules import truth

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
