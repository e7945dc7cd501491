"""What a rule says of an event: values, wildcards, modifiers, types, missing fields."""

from __future__ import annotations

import base64

import pytest

from eddyline.errors import QueryError
from eddyline.query.conditions import Compare, NativeTest, TextTest, ValueTest
from eddyline.sigma import read


@pytest.mark.parametrize(
    ("detection", "value", "expected"),
    [
        (r"F: abc", "ABC", True),
        (r"F: abc", "abcd", False),
        (r"F: 'a*c'", "A\n\\c", True),
        (r"F: 'a?c'", "a\nc", True),
        (r"F: 'a?c'", "ac", False),
        (r"F: 'a\*c'", "a*C", True),
        (r"F: 'a\*c'", "abc", False),
        (r"F: 'a\?c'", "a?c", True),
        (r"F: 'a\\*'", r"a\bc", True),
        (r"F: 'a\\\*'", "a\\*", True),
        (r"F: 'a\b'", "A\\B", True),
        (r"F: 'C:\Windows\\*'", "c:\\windows\\x", True),
        (r"F: '100%_x'", "100%_X", True),
        (r"F: '100%_x'", "100ab", False),
        (r"F: ''", "", True),
        (r"F: ''", " ", False),
        (r"F: '*'", "", True),
        (r"F: '*'", None, None),
        (r"F: ''", None, None),
        (r"F|contains: '%'", "a%b", True),
        (r"F|contains: '_'", "ab", False),
        (r"F|contains: ''", "", True),
        (r"F|startswith: A", "abc", True),
        (r"F|endswith: '\cmd.exe'", "C:\\x\\CMD.EXE", True),
        (r"F|endswith: '\cmd.exe'", "cmd.exe", False),
        (r"F|cased: Abc", "Abc", True),
        (r"F|cased: Abc", "abc", False),
        (r"F|contains|cased: Abc", "xAbcx", True),
        (r"F|contains|cased: Abc", "xabcx", False),
        (r"F|contains|all: [a, b]", "xBxA", True),
        (r"F|contains|all: [a, b]", "xBx", False),
        (r"F|contains: [a, b]", "xBx", True),
        (r"F|re: 'a.c'", "xABC", False),
        (r"F|re: 'a.c'", "xabcx", True),
        (r"F|re: 'a.c'", "a\nc", False),
        (r"F|re|i: 'a.c'", "ABC", True),
        (r"F|re|s: 'a.c'", "a\nc", True),
        (r"F|re|m: '^b$'", "a\nb\nc", True),
        (r"F|re: '^b$'", "a\nb\nc", False),
        (r"F|re: '(?i)A(?=b)'", "xab", True),
        (r"F|cidr: 10.0.0.0/8", "10.1.2.3", True),
        (r"F|cidr: 10.0.0.0/8", "11.1.2.3", False),
        (r"F|cidr: 10.0.0.0/8", "not an address", False),
        (r"F|cidr: '2001:db8::/32'", "2001:DB8:0:1::9", True),
        (r"F|cidr: '2001:db8::/32'", "10.1.2.3", False),
        (r"F|windash|contains: ' -f '", "x /F y", True),
        (r"F|windash|contains: ' -f '", "x \u2013f y", True),
        (r"F|windash|contains: ' -f '", "x +f y", False),
        (r"F|base64: foobar", "Zm9vYmFy", True),
        (r"F|base64offset|contains: foobar", base64.b64encode(b"..foobar..").decode(), True),
        (r"F|base64offset|contains: foobar", base64.b64encode(b".foobar..").decode(), True),
        (r"F|base64offset|contains: foobar", base64.b64encode(b"..fobar..").decode(), False),
        (
            r"F|wide|base64offset|contains: foo",
            base64.b64encode("xfoo!".encode("utf-16le")).decode(),
            True,
        ),
        (
            r"F|utf16be|base64|contains: fo",
            base64.b64encode("fo".encode("utf-16be")).decode(),
            True,
        ),
        (r"F: null", None, True),
        (r"F: null", "", False),
        (r"F|exists: true", "", True),
        (r"F|exists: true", None, False),
        (r"F|exists: false", None, True),
        (r"F: [null, a]", "A", True),
        (r"F: [null, a]", None, True),
        (r"F: [null, a]", "b", False),
    ],
)
def test_a_text_is_tested_as_the_modifiers_say(ask, detection, value, expected):
    assert ask(f"selection:\n  {detection}", {"F": value}, {"F": "string"}) is expected


@pytest.mark.parametrize(
    ("written", "value", "expected"),
    [
        ("ı", "I", False),  # a dotless i is no i
        ("İ", "i\u0307", True),  # a capital i with a dot is two characters in lower case
        ("İ", "i", False),
        ("ß", "SS", False),
        ("STRASSE", "straße", False),
        ("ß", "ẞ", True),
        ("s", "ſ", False),
        ("k", "\u212a", True),  # the Kelvin sign
        ("Å", "\u212b", True),  # the Ångström sign
        ("ΟΔΟΣ", "οδος", True),  # the last sigma of a word
        ("é", "É", True),
        ("e\u0301", "é", False),  # nothing is normalised
    ],
)
def test_case_is_what_lower_case_makes_of_both_sides(ask, written, value, expected):
    assert ask(f"selection:\n  F: '{written}'", {"F": value}) is expected
    assert ask(f"selection:\n  F|contains: '{written}'", {"F": f"<{value}>"}) is expected


@pytest.mark.parametrize(
    ("detection", "value", "expected"),
    [
        ("F: 5", 5, True),
        ("F: 5", 5.0, True),
        ("F: 5", "5", True),
        ("F: 5", "05", False),
        ("F: '5'", 5, True),
        ("F: '05'", 5, True),
        ("F: '5*'", 512, True),
        ("F: '5*'", 612, False),
        ("F: abc", 5, False),
        ("F: 1.5", 1.5, True),
        ("F: 1.5", "1.5", True),
        ("F: 1.5", 1, False),
        ("F: '9007199254740993'", 9007199254740993, True),
        ("F: '9007199254740993'", 9007199254740992, False),
        ("F: 1152921504606846976", 1152921504606846976, True),
        ("F: 1152921504606846976", 1152921504606846975, False),
        ("F|gt: 5", 6, True),
        ("F|gt: 5", 5, False),
        ("F|gte: 5", 5, True),
        ("F|lt: 5.5", 5, True),
        ("F|lte: 5", 6, False),
        ("F: true", True, True),
        ("F: true", False, False),
        ("F: true", "True", True),
        ("F: 'true'", True, True),
        ("F: true", 1, True),
        ("F|contains: '68'", 4688, True),
        ("F|re: '^46'", 4688, True),
    ],
)
def test_numbers_texts_and_booleans_meet(ask, detection, value, expected):
    assert ask(f"selection:\n  {detection}", {"F": value}) is expected


def test_fields_are_found_in_any_case_and_along_paths(ask):
    event = {"image": "a.exe", "process": {"Command_Line": "x y", "parent": {"name": "p"}}}
    assert ask("selection: {Image: A.EXE}", event)
    assert ask("selection: {process.command_line|contains: Y}", event)
    assert ask("selection: {Process.Parent.Name: p}", event)
    assert ask("selection: {process.other: null}", event)
    assert ask("selection: {process.other: x}", event) is None
    both = {"Image": "upper", "image": "lower"}
    assert ask("selection: {image: lower}", both)
    assert ask("selection: {Image: upper}", both)
    assert ask("selection: {a.b: dotted}", {"a.b": "dotted", "a": {"b": "nested"}})


NOT_FILTERED = """
selection: {Image: a.exe}
filter: {User: root}
condition: selection and not filter
"""


def test_a_test_of_a_missing_field_is_unknown_or_false(ask):
    for event, columns in (
        ({"Image": "a.exe"}, None),
        ({"Image": "a.exe"}, {"Image": "string", "User": "string"}),
    ):
        assert ask(NOT_FILTERED, event, columns) is None
        assert ask(NOT_FILTERED, event, columns, missing="null") is None
        assert ask(NOT_FILTERED, event, columns, missing="false") is True
    event = {"Image": "a.exe", "User": "ROOT"}
    assert ask(NOT_FILTERED, event) is ask(NOT_FILTERED, event, missing="false") is False


def test_a_keyword_is_looked_for_in_every_text(ask):
    event = {"a": None, "b": "xx Mimikatz yy", "n": 7, "s": {"inner": "deep"}}
    columns = {"a": "string", "b": "string", "n": "bigint", "s": "struct<inner:string>"}
    assert ask("selection: [mimikatz, other]", event, columns)
    assert ask("selection: [DEEP]", event, columns)
    assert ask("selection: ['mimi*yy']", event, columns)
    assert ask("selection: [7]", event, columns)
    assert ask("selection: [other]", event, columns) is False
    assert ask("selection: {'|all': [mimikatz, deep]}", event, columns)
    assert ask("selection: {'|re': 'M.mi'}", event, columns)
    assert ask("selection: [x]\ncondition: not selection", {"n": 7})


def test_of_several_conditions_one_has_to_hold(ask):
    rule = "a: {F: x}\nb: {F: y}\ncondition: [a, b]"
    assert [ask(rule, {"F": value}) for value in "xyz"] == [True, True, False]


def test_quantifiers(ask):
    rule = "sel_a: {F: x}\nsel_b: {G: y}\n_sel_c: {F: z}\ncondition: {}"
    events = [{"F": "x", "G": "y"}, {"F": "x", "G": "n"}, {"F": "z", "G": "n"}]
    expected = {
        "1 of sel_*": [True, True, False],
        "all of sel_*": [True, False, False],
        "1 of them": [True, True, False],
        "all of them": [True, False, False],
        "any of sel_*": [True, True, False],
        "not 1 of sel_*": [False, False, True],
        "sel_a and not sel_b": [False, True, False],
        "_sel_c or (sel_a and sel_b)": [True, False, True],
    }
    for condition, outcomes in expected.items():
        assert [ask(rule.replace("{}", condition), event) for event in events] == outcomes


def bound(rule_text, detection, columns, **options):
    source = read(rule_text(detection), cache=False, **options).sources[0]
    return source.bind(columns, ansi=True).tree


def test_what_python_need_not_decide_stays_native(rule_text):
    columns = {"a": "string", "b": "string", "n": "int", "t": "timestamp"}
    native = {
        "selection: {a|fieldref: b}": "lower(`a`) = lower(`b`)",
        "selection: {a|fieldref|endswith: b}": "endswith(lower(`a`), lower(`b`))",
        "selection: {a|fieldref|startswith: b}": "startswith(lower(`a`), lower(`b`))",
        "selection: {a|fieldref|contains: b}": "contains(lower(`a`), lower(`b`))",
        "selection: {a|fieldref: n}": "lower(`a`) = lower(CAST(`n` AS STRING))",
        "selection: {a|gt: 5}": "try_cast(`a` AS DECIMAL(38,18)) > 5BD",
        "selection: {t|hour: 5}": "hour(`t`) = 5",
        "selection: {a|week: 5}": "weekofyear(try_cast(`a` AS TIMESTAMP)) = 5",
    }
    for detection, sql in native.items():
        tree = bound(rule_text, detection, columns)
        assert isinstance(tree, NativeTest)
        assert tree.sql == sql
        assert set(tree.columns) <= set(columns)


def test_shapes_that_are_shared_stay_recognisable(rule_text):
    tree = bound(rule_text, "selection: {a|contains: X}", {"A": "string"})
    assert isinstance(tree, TextTest)
    assert (tree.operand.sql, tree.operand.columns, tree.folded) == ("`A`", ("A",), True)
    assert [str(getattr(part, "what", part)) for part in tree.parts] == ["%", "x", "%"]
    tree = bound(rule_text, "selection: {a: 5}", {"a": "int"})
    assert isinstance(tree, Compare)
    assert (tree.op, tree.value, type(tree.value)) == ("=", 5, int)
    assert type(bound(rule_text, "selection: {a: 5}", {"a": "double"}).value) is float
    tree = bound(rule_text, "selection: {a|re: x}", {"a": "string"})
    assert isinstance(tree, ValueTest)


def test_a_field_that_cannot_be_tested_is_an_error_that_names_rule_and_field(rule_text):
    source = read(rule_text("selection: {Image: a}"), cache=False).sources[0]
    with pytest.raises(QueryError, match=r"11111111-.*'Image' is of type array<string>"):
        source.bind({"Image": "array<string>"}, ansi=True)
    source = read(rule_text("selection: {Image: null}"), cache=False).sources[0]
    assert source.bind({"Image": "array<string>"}, ansi=True).tree == NativeTest(
        "`Image` IS NULL", ("Image",)
    )


def encoded(chain, text):
    """Return the bytes that a chain of encodings, without Base64, makes of a text."""
    encodings = {"wide": "utf-16le", "utf16be": "utf-16be", "": "utf-8"}
    if chain == "utf16":
        return b"\xff\xfe" + text.encode("utf-16le")
    return text.encode(encodings[chain])


@pytest.mark.parametrize("chain", ["", "wide", "utf16be", "utf16"])
@pytest.mark.parametrize("text", ["foo", "fo", "f", "a+b", "fo*o", "é€x", "naïve"])
def test_base64offset_finds_the_bytes_of_a_text_at_every_offset(ask, chain, text):
    if chain and not text.isascii():
        return  # pySigma refuses them
    key = "|".join(filter(None, ("F", chain, "base64offset", "contains", "cased")))
    detection = f"selection:\n  {key}: '{text.replace('*', chr(92) + '*')}'"
    inner = encoded(chain, text)
    for n_before in range(6):
        for n_after in range(4):
            whole = b"\x01" * n_before + inner + b"\xfe" * n_after
            assert ask(detection, {"F": base64.b64encode(whole).decode()}) is True
    if len(inner) > 3:
        other = base64.b64encode(inner[:-1] + b"\x55" + inner[-1:]).decode()
        assert ask(detection, {"F": other}) is False


def test_utf16_in_base64_has_its_byte_order_mark(ask):
    whole = base64.b64encode("foo".encode("utf-16")).decode()
    assert ask("selection:\n  F|utf16|base64|cased: foo", {"F": whole}) is True


@pytest.mark.parametrize(
    ("test", "problem"),
    [
        ("F|utf16|contains: foo", "field 'F': 'utf16' is for Base64"),
        ("F|wide: foo", "field 'F': 'wide' is for Base64"),
        ("F|base64|wide: foo", "field 'F': 'wide' is for Base64"),
        ("F|base64offset: foob", "field 'F': 'base64offset' finds a part of a text"),
        ("F|all: [a, b]", "field 'F': 'all' asks one value to equal several"),
        ("F|all: [a, 1]", "field 'F': 'all' asks one value to equal several"),
        ("F|all: [a, 'A', 'b*']", None),
        ("F|contains|all: [a, b]", None),
        ("'|all': [a, b]", None),
        ("F|wide|base64offset|contains: foo", None),
    ],
)
def test_a_rule_that_its_modifiers_keep_from_matching_says_so(rule_text, test, problem):
    (source,) = read(rule_text(f"selection:\n  {test}"), cache=False).sources
    problems = source.info["problems"]
    assert (problem is None and not problems) or any(each.startswith(problem) for each in problems)
