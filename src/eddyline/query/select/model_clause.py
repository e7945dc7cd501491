"""Clauses of model queries.

``MODEL …`` stands behind a stream; others say which results the query has. A clause behind a stream
has one of these forms:

* ``MODEL x = x + vx * t HORIZON 2 MINUTES BY ship`` declares the attributes between two rows.
* ``MODEL d(x) = a - b * x WITHIN 0.5 HORIZON 2 MINUTES BY ship`` declares their rates.
* ``MODEL x WITHIN 0.5, y WITHIN 1 % MAX GAP 10 MINUTES BY ship`` fits them within bounds;
  ``MODEL (x, y)`` fits them as closely as the results need.
* ``MODEL TRACK (lat, lon) WITHIN 50`` fits positions.
* ``MODEL SEGMENTS`` takes rows that are segments already; ``MODEL SEGMENTS OF tracks AT ts`` names
  the table of the rows that they stand for.

A query ends with ``SAMPLE EVERY 10 SECONDS`` or ``CHANGES``, ``WITHIN 1 %`` or ``PRECISION x WITHIN
0.5``, ``ASSUMING x BETWEEN 0 AND 100``, and ``EARLY`` or ``EXACT``. Only words are read
here; ``models/`` knows what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType

from eddyline.query.cql import WindowParser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token

MODEL = "model"
OUTPUTS = "outputs"
"""Keys of ``meta`` of nodes: the clause behind a name or an alias, and what a query says last."""

_WINDOWS = ("RANGE", "ROWS", "UNBOUNDED", "NOW", "SESSION", "PARTITION", "PARTITION BY")
EXACT = "EXACT"
_OUTPUTS = ("CHANGES", "WITHIN", "PRECISION", "ASSUMING", "EARLY", EXACT)
_OPTIONS = ("BY", "AT", "HORIZON")
_DEPTHS = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}
_FORMS = "x = x + vx * t, or x WITHIN 0.5"
TRACK = "track"
"""The name of the attribute of positions."""


@dataclass(frozen=True, slots=True)
class ModelledName:
    """An attribute on the left of an equation or before WITHIN."""

    name: str
    start: int
    qualifier: str = ""
    """The stream that was written before it."""


@dataclass(slots=True)
class ModelClause:
    """What is written behind MODEL; offsets are those in the query."""

    start: int
    end: int = 0
    """The offset behind its last character."""
    names: list[ModelledName] = field(default_factory=list)
    equations: dict[str, Sequence[Token]] = field(default_factory=dict)
    """The right sides of declared attributes."""
    near: dict[str, str] = field(default_factory=dict)
    """How near attributes are solved that are declared by their rates; "" if it is not said."""
    bounds: dict[str, str] = field(default_factory=dict)
    """Bounds of fitted attributes: ``0.5``, or ``1 %`` of each value; "" if none is written."""
    are_segments: bool = False
    """Whether the rows are segments already."""
    track: list[tuple[str, int]] = field(default_factory=list)
    """The columns of latitude and longitude, each with its offset, of positions."""
    of: tuple[str, int] | None = None
    """The table of the rows that these stand for, and its offset."""
    keys: list[tuple[str, int]] = field(default_factory=list)
    """Columns of BY, each with its offset."""
    time: tuple[str, int] | None = None
    """The column of AT and its offset."""
    horizon_us: int | None = None
    max_gap_us: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """What is written in WITH (…)."""
    places: dict[str, int] = field(default_factory=dict)
    """Offsets of options, by their words."""

    def equation(self, name: str, qualifiers: Sequence[str], query: str) -> EquationText:
        """Return the right side of an equation as SQL; arguments as of ``equation_of``."""
        return equation_of(self.equations[name], qualifiers, query)


@dataclass(slots=True)
class Outputs:
    """What is said at the end of a query of models; offsets are those in the query."""

    every_us: int | None = None
    """The distance of the ticks at which there are results; None if it is not said."""
    is_changes: bool = False
    bounds: dict[str, str] = field(default_factory=dict)
    """Bounds of results as of ``ModelClause``, by attribute; ``""`` is of all of them."""
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Between which values modelled attributes are said to be."""
    is_exact: bool = False
    is_early: bool = False
    """Whether results are given before they are final."""
    places: dict[str, int] = field(default_factory=dict)
    """Offsets by their words."""


def begins_model(token: Token, behind: Token) -> bool:
    """Return whether a word behind a stream is MODEL, and not an alias of that name."""
    is_word = token.token_type == TokenType.VAR and token.text.upper() == "MODEL"
    return is_word and _begins_operand(behind)


def begins_output(token: Token, behind: Token) -> bool:
    """Return whether a word begins what is said of results."""
    word = token.text.upper() if token.token_type == TokenType.VAR else ""
    return word in _OUTPUTS or (word == "SAMPLE" and behind.text.upper() == "EVERY")


def _begins_operand(token: Token) -> bool:
    if not token or token.token_type in ENDS:
        return False
    others = {TokenType.L_PAREN, TokenType.NUMBER, TokenType.STRING, TokenType.EQ}
    return _is_name(token) or token.token_type in others


def _begins_track(token: Token, behind: Token) -> bool:
    """Return whether a word begins a position, and is not the name of an attribute."""
    is_word = token.text.lower() == TRACK and token.token_type != TokenType.IDENTIFIER
    return is_word and bool(behind) and behind.token_type == TokenType.L_PAREN


def _begins_rate(token: Token, behind: Token) -> bool:
    """Return whether a word begins the rate of an attribute, ``d(x)``."""
    return token.text.lower() == "d" and bool(behind) and behind.token_type == TokenType.L_PAREN


def _is_name(token: Token) -> bool:
    is_bare = token.text.isidentifier() and token.token_type != TokenType.STRING
    return is_bare or token.token_type == TokenType.IDENTIFIER


class ModelParser(WindowParser):
    """Reads the clauses from tokens that follow each other, as many as there are."""

    @property
    def n_read(self) -> int:
        """How many tokens were read."""
        n: int = self._index
        return n

    # -- MODEL ------------------------------------------------------------------------------------

    def model(self) -> ModelClause:
        """Read what stands from MODEL on.

        Raises:
            QueryError: it is none of the forms; the message shows where.
        """
        clause = self._model()
        clause.end = self._prev.end + 1
        return clause

    def _model(self) -> ModelClause:
        clause = ModelClause(self._offset)
        self._advance()
        if self._are_segments():
            self._advance()
            clause.are_segments = True
            if self._says_of():
                self._advance()
                clause.of = self._name("OF needs the table of the rows"), self._prev.start
            while self._option(clause):
                pass
            return clause
        opening = self._curr if self._match(TokenType.L_PAREN) else None
        while not clause.names or self._goes_on(is_inside=opening is not None):
            self._attribute(clause, is_inside=opening is not None)
        if opening is not None and not self._match(TokenType.R_PAREN):
            self._refuse_next("the attributes of MODEL ( … need a closing parenthesis")
        while self._option(clause):
            pass
        if clause.equations and clause.bounds:
            message = "attributes are declared (x = …) or fitted (x WITHIN …), not both in one"
            self._refuse(f"{message} clause; write two, and join them", clause.start)
        return clause

    def _are_segments(self) -> bool:
        word, behind = self._curr, self._next
        is_left = bool(behind) and behind.token_type in {TokenType.EQ, TokenType.DOT}
        is_left |= bool(behind) and behind.text.upper() == "WITHIN"
        return bool(word) and word.text.upper() == "SEGMENTS" and not is_left

    def _says_of(self) -> bool:
        """Return whether OF stands here, and not an alias of that name."""
        word, behind = self._curr, self._next
        is_name = bool(behind) and _is_name(behind) and behind.token_type not in ENDS
        return is_name and word.text.upper() == "OF"

    def _goes_on(self, *, is_inside: bool) -> bool:
        """Step over a comma if another attribute follows it."""
        if not self._curr or self._curr.token_type != TokenType.COMMA:
            return False
        tokens = self._tokens[self._index + 1 : self._index + 5]
        kinds = [token.token_type for token in tokens]
        name = 2 if kinds[1:2] == [TokenType.DOT] else 0
        behind = tokens[name + 1] if len(tokens) > name + 1 else None
        says = behind is not None and (
            behind.token_type == TokenType.EQ
            or behind.text.upper() == "WITHIN"
            or _begins_track(tokens[name], behind)
            or _begins_rate(tokens[name], behind)
        )
        if not says and not is_inside:
            return False
        self._advance()
        return True

    def _attribute(self, clause: ModelClause, *, is_inside: bool) -> None:
        start, name = self._offset, self._name(f"MODEL needs an attribute, such as {_FORMS}")
        qualifier = ""
        is_rate = _begins_rate(self._prev, self._curr)
        if is_rate:
            self._advance()
            name = self._name(
                "d( … ) needs the attribute whose rate it is, such as d(x) = a - b * x"
            )
        if self._match(TokenType.DOT):
            qualifier, name = name, self._name("MODEL needs an attribute behind the point")
        if is_rate and not (self._match(TokenType.R_PAREN) and self._curr
                            and self._curr.token_type == TokenType.EQ):  # fmt: skip
            self._refuse_next(f"the rate of {name!r} is written d({name}) = a - b * {name}")
        if name.lower() in (modelled.name.lower() for modelled in clause.names):
            self._refuse(f"{name!r} is modelled twice", start)
        if not qualifier and _begins_track(self._prev, self._curr):
            name = TRACK
            clause.track = self._track()
        if self._match(TokenType.EQ):
            clause.equations[name] = self._equation(name, is_inside=is_inside)
            if is_rate:
                is_near = self._match_text_seq("WITHIN")
                clause.near[name] = self._bound() if is_near else ""
        elif self._match_text_seq("WITHIN"):
            clause.bounds[name] = self._bound()
        elif self._curr and not self._ends_equation(is_inside=is_inside):
            self._refuse_next(f"{name!r} needs its equation or its bound: {_FORMS}")
        else:
            clause.bounds[name] = ""
        clause.names.append(ModelledName(name, start, qualifier))

    def _track(self) -> list[tuple[str, int]]:
        """Read the columns of a position."""
        needs = "TRACK needs the columns of latitude and longitude, TRACK (lat, lon)"
        columns: list[tuple[str, int]] = []
        self._match(TokenType.L_PAREN)
        while not columns or self._match(TokenType.COMMA):
            start = self._offset
            columns.append((self._name(needs), start))
        if not self._match(TokenType.R_PAREN) or len(columns) != 2:
            self._refuse_next(needs)
        if self._curr and self._curr.token_type == TokenType.EQ:
            self._refuse_next("TRACK is fitted: TRACK (lat, lon) WITHIN 50")
        return columns

    def _equation(self, name: str, *, is_inside: bool) -> list[Token]:
        tokens: list[Token] = []
        depth = 0
        while self._curr and not (depth == 0 and self._ends_equation(is_inside=is_inside)):
            depth += _DEPTHS.get(self._curr.token_type, 0)
            tokens.append(self._curr)
            self._advance()
        if not tokens:
            self._refuse_next(f"the equation of {name!r} is missing, such as x = x + vx * t")
        return tokens

    def _ends_equation(self, *, is_inside: bool) -> bool:
        token, behind = self._curr, self._next
        word = token.text.upper()
        if token.token_type in {TokenType.R_PAREN, TokenType.COMMA}:
            return True
        if token.token_type == TokenType.L_BRACKET:
            return bool(behind) and behind.text.upper() in _WINDOWS
        if is_inside:
            return False
        is_call = bool(behind) and behind.token_type == TokenType.L_PAREN
        if token.token_type == TokenType.WITH or (word == "MAX" and behind.text.upper() == "GAP"):
            return True
        if token.token_type == TokenType.VAR and (word in _OPTIONS or begins_output(token, behind)):
            return not is_call
        return token.token_type in ENDS and not (is_call and token.token_type in _CALLED)

    def _bound(self) -> str:
        start = self._offset
        if self._curr and self._curr.token_type == TokenType.DASH:
            self._refuse("a bound is 0 or more", start)
        number = self._number("WITHIN needs a number, such as WITHIN 0.5 or WITHIN 1 %")
        return f"{number} %" if self._match(TokenType.MOD) else number

    def _option(self, clause: ModelClause) -> bool:
        start = self._offset
        if self._match_text_seq("BY"):
            self._once(clause.places, "BY", start)
            while not clause.keys or self._another_key():
                offset = self._offset
                clause.keys.append((self._name("BY needs the columns that say the entity"), offset))
        elif self._match_text_seq("AT"):
            self._once(clause.places, "AT", start)
            offset = self._offset
            clause.time = self._name("AT needs the column of the time"), offset
        elif self._match_text_seq("HORIZON"):
            self._once(clause.places, "HORIZON", start)
            clause.horizon_us = self._positive("HORIZON", "2 MINUTES")
        elif self._match_text_seq("MAX", "GAP"):
            self._once(clause.places, "MAX GAP", start)
            clause.max_gap_us = self._positive("MAX GAP", "10 MINUTES")
        elif self._match(TokenType.WITH):
            self._once(clause.places, "WITH", start)
            clause.options = self._written_options()
        else:
            return False
        return True

    def _another_key(self) -> bool:
        """Step over a comma if a key follows it, and not another stream with its MODEL."""
        if not self._curr or self._curr.token_type != TokenType.COMMA:
            return False
        words = [token.text.upper() for token in self._tokens[self._index + 2 : self._index + 5]]
        is_stream = "MODEL" in words[:2] or (words[:1] == ["AS"] and words[2:] == ["MODEL"])
        is_stream |= self._next.token_type == TokenType.L_PAREN
        if not is_stream:
            self._advance()
        return not is_stream

    def _written_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if not self._match(TokenType.L_PAREN):
            self._refuse_next("WITH needs options in parentheses, such as WITH (degree = 1)")
        while not options or self._match(TokenType.COMMA):
            start, name = self._offset, self._name("an option needs a name, such as degree = 1")
            if name.lower() in options:
                self._refuse(f"option {name!r} is said twice", start)
            if not self._match(TokenType.EQ):
                self._refuse_next(f"option {name!r} needs a value, such as degree = 1")
            options[name.lower()] = self._value(name)
        if not self._match(TokenType.R_PAREN):
            self._refuse_next("WITH ( … needs a closing parenthesis")
        return options

    def _value(self, name: str) -> Any:
        if self._match(TokenType.STRING):
            return self._prev.text
        number = self._number(f"option {name!r} needs a number, or a text in quotes")
        return int(number) if number.isdecimal() else float(number)

    # -- what is said of results ------------------------------------------------------------------

    def outputs(self) -> Outputs:
        """Read what is said of results.

        Raises:
            QueryError: it is said twice, or cannot be read; the message shows where.
        """
        outputs = Outputs()
        self._where = "the results"
        while self._curr and self._output(outputs):
            pass
        return outputs

    def _output(self, outputs: Outputs) -> bool:
        start = self._offset
        if self._match_text_seq("SAMPLE", "EVERY"):
            self._once(outputs.places, "SAMPLE", start, "CHANGES")
            outputs.every_us = self._positive("SAMPLE EVERY", "10 SECONDS")
        elif self._match_text_seq("CHANGES"):
            self._once(outputs.places, "CHANGES", start, "SAMPLE")
            self._match_text_seq("ONLY")
            outputs.is_changes = True
        elif self._match_text_seq("EARLY"):
            self._once(outputs.places, "EARLY", start, EXACT)
            outputs.is_early = True
        elif self._match_text_seq("EXACT"):
            self._once(outputs.places, "EXACT", start, "EARLY")
            outputs.is_exact = True
        elif self._match_text_seq("WITHIN"):
            self._once(outputs.places, "WITHIN", start, "PRECISION")
            outputs.bounds[""] = self._bound()
        elif self._match_text_seq("PRECISION"):
            self._once(outputs.places, "PRECISION", start, "WITHIN")
            while not outputs.bounds or self._match(TokenType.COMMA):
                self._precision(outputs)
        elif self._match_text_seq("ASSUMING"):
            self._once(outputs.places, "ASSUMING", start)
            while not outputs.ranges or self._match(TokenType.COMMA):
                self._range(outputs)
        else:
            return False
        return True

    def _range(self, outputs: Outputs) -> None:
        needs = "ASSUMING needs ranges of attributes, such as ASSUMING x BETWEEN 0 AND 100"
        start, name, ends = self._offset, self._name(needs), []
        if name.lower() in map(str.lower, outputs.ranges):
            self._refuse(f"{name!r} has two ranges", start)
        for word in ("BETWEEN", "AND"):
            if not self._match_text_seq(word):
                self._refuse_next(needs)
            sign = -1 if self._match(TokenType.DASH) else 1
            ends.append(sign * float(self._number(needs)))
        outputs.ranges[name] = ends[0], ends[1]

    def _precision(self, outputs: Outputs) -> None:
        needs = "PRECISION needs attributes and bounds, such as PRECISION x WITHIN 0.5"
        start, name = self._offset, self._name(needs)
        if not self._match_text_seq("WITHIN"):
            self._refuse_next(needs)
        if name.lower() in map(str.lower, outputs.bounds):
            self._refuse(f"{name!r} has two bounds", start)
        outputs.bounds[name] = self._bound()
        outputs.places[f"PRECISION {name}"] = start

    # -- parts ------------------------------------------------------------------------------------

    def _name(self, needs: str) -> str:
        token: Token = self._curr
        if not token or not _is_name(token) or token.token_type in ENDS:
            self._refuse_next(needs)
        self._advance()
        return token.text

    def _once(self, places: dict[str, int], word: str, start: int, other: str = "") -> None:
        """Note where a word stands; refuse it a second time, or beside another one."""
        if word in places:
            self._refuse(f"{word} is said twice", start)
        if other in places:
            self._refuse(f"{word} and {other} say two things of the same; write one", start)
        places[word] = start


def models_behind(source: Any) -> list[ModelClause]:
    """Return the clauses that stand behind the name and behind the alias of a source of FROM."""
    alias = source.args.get("alias")
    nodes = [source, *([] if alias is None else [alias])]
    return [node.meta[MODEL] for node in nodes if MODEL in node.meta]


TIME = "T"
"""The variable of equations."""
ENDS = frozenset(
    {TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ON, TokenType.USING}
    | {TokenType.JOIN, TokenType.LEFT, TokenType.RIGHT, TokenType.INNER, TokenType.CROSS}
    | {TokenType.FULL, TokenType.NATURAL, TokenType.SEMI, TokenType.ANTI, TokenType.UNION}
    | {TokenType.EXCEPT, TokenType.INTERSECT, TokenType.ORDER_BY, TokenType.SORT_BY}
    | {TokenType.LIMIT, TokenType.OFFSET, TokenType.ALIAS, TokenType.SEMICOLON, TokenType.WINDOW}
    | {TokenType.LATERAL, TokenType.PIVOT, TokenType.UNPIVOT, TokenType.TABLE_SAMPLE}
)
"""What cannot stand in an equation: there it ends, unless it is the name of a function."""
_CALLED = frozenset({TokenType.LEFT, TokenType.RIGHT, TokenType.WINDOW})
"""Those of them that may be the name of a function."""


@dataclass(frozen=True, slots=True)
class EquationText:
    """The right side of an equation as SQL, and where in the query its pieces stand."""

    text: str
    places: tuple[tuple[int, int], ...]
    """Offsets of pieces in the text, ascending, and those in the query."""

    def offset(self, position: int) -> int:
        """Return the offset in the query of one in the text."""
        begin, start = max((place for place in self.places if place[0] <= position), default=(0, 0))
        return start + position - begin


def equation_of(tokens: Sequence[Token], qualifiers: Sequence[str], query: str) -> EquationText:
    """Return the right side of an equation, as SQL that Spark reads.

    ``A.v t`` is a product, and ``t^2`` a power. Between tokens, which are those of the query, is
    one blank: equal equations are equal texts.

    Args:
        tokens: of the right side.
        qualifiers: names of the stream in lower case, which go.
        query: the text that the tokens are of.
    """
    pieces = _Pieces()
    position = 0
    while position < len(tokens):
        token, behind = tokens[position], tokens[position + 1 : position + 3]
        kinds = [next_token.token_type for next_token in behind]
        if token.text.lower() in qualifiers and kinds[:1] == [TokenType.DOT]:
            position += 2
            continue
        is_time = token.text.upper() == TIME and token.token_type == TokenType.VAR
        is_bare = is_time and not (position and tokens[position - 1].token_type == TokenType.DOT)
        if is_bare and position and ends_operand(tokens[position - 1]):
            pieces.add("*", token.start)
        if is_bare and kinds == [TokenType.CARET, TokenType.NUMBER]:
            pieces.add(f"pow(t, {behind[1].text})", token.start)
            position += 3
            continue
        if (
            not position or tokens[position - 1].start != token.start
        ):  # of 2L there are three tokens
            pieces.add(query[token.start : token.end + 1], token.start)
        position += 1
    return EquationText(pieces.text, tuple(pieces.places))


class _Pieces:
    def __init__(self) -> None:
        self.text = ""
        self.places: list[tuple[int, int]] = []

    def add(self, text: str, start: int) -> None:
        is_tight = text in {".", ",", ")", "(", "["} or self.text.endswith((".", "(", "["))
        self.text += "" if not self.text or is_tight else " "
        self.places.append((len(self.text), start))
        self.text += text


def ends_operand(token: Token) -> bool:
    """Return whether what a token ends may be multiplied by what follows."""
    kind = token.token_type
    return kind in {TokenType.NUMBER, TokenType.R_PAREN, TokenType.IDENTIFIER, TokenType.VAR} or (
        kind not in ENDS and token.text.isidentifier()
    )
