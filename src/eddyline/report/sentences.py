"""The evidence of decisions in sentences, for the page, the report and the explanation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from eddyline.report.formatting import (
    TIMES,
    clipped,
    count,
    duration,
    order_text,
    percent,
    ratio,
    significant,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eddyline.runtime.journal import JournalEntry

MOST_NAMED = 3
"""Inputs, caches or plans that a sentence names; the evidence has all."""


def sentence(entry: JournalEntry) -> str:
    """Say in sentences why a decision was taken; empty where there are no words for its evidence.

    >>> from eddyline.runtime.journal import JournalEntry
    >>> evidence = {"table_rows": 1200, "table_bytes": 30_000}
    >>> sentence(JournalEntry(4, "join", "way", "buckets", "broadcast", evidence))
    'The tables have 1,200 rows (30 kB): every task gets all of them.'
    >>> sentence(JournalEntry(4, "join", "unheard_of", evidence=evidence))
    ''
    """
    write = _WRITERS.get(entry.event)
    if write is None or not entry.evidence:
        return ""
    try:
        return " ".join(write(entry, entry.evidence))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return ""  # a journal of another version has other evidence


def _order(entry: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    if why := evidence.get("why"):
        rule = f"Rule {clipped(evidence['rule'])}: " if "rule" in evidence else ""
        yield _capital(f"{rule}{why}.")
    elif "better_drop_frac" in evidence:
        old, new = _reached(evidence, ""), _reached(evidence, "better_")
        yield f"Of the newest rows that reached it, {old}, {new}: {_goes(entry, evidence)}."
    elif "better_filter" in evidence:
        yield from _by_ratio(entry, evidence)
    if matches := evidence.get("combinations_per_row"):
        pairs = sorted(matches.items(), key=lambda pair: pair[1])
        said = _named(f"{significant(n)} rows of {clipped(name)}" for name, n in pairs)
        yield f"A row is joined with {said} on average."
    if "proposed_cost_ns" in evidence:
        old_ns, new_ns = duration(evidence["cost_ns"]), duration(evidence["proposed_cost_ns"])
        yield f"A row is estimated to cost {new_ns} instead of {old_ns}."


def _reached(evidence: Mapping[str, Any], which: str) -> str:
    """Say what a filter dropped of the rows that reached a position, at which cost."""
    dropped = "" if which else " dropped"
    share = _share(evidence[f"{which}drop_frac"])
    cost = evidence.get(f"{which}filter_cost_ns")
    price = "" if cost is None else f" at {duration(cost)} a row"
    return f"{clipped(evidence[f'{which}filter'])}{dropped} {share}{price}"


def _by_ratio(entry: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    """Compare filters by what they drop for their cost, where the shares are not known."""
    old, new = clipped(evidence["filter"]), clipped(evidence["better_filter"])
    goes = _goes(entry, evidence)
    factor = ratio(evidence["better_ratio"], evidence["ratio"])
    if factor is None:
        yield f"{old} dropped none of the newest rows that reached it: {goes}."
    else:
        more = f"{significant(factor)} {TIMES} as many of the newest rows as {old}"
        yield f"For its cost, {new} dropped {more}: {goes}."


def _goes(entry: JournalEntry, evidence: Mapping[str, Any]) -> str:
    """Say where the better filter goes, as the order after the decision has it."""
    old, new = evidence["filter"], evidence["better_filter"]
    order = list(entry.after)
    if order.index(new) == 0:
        return f"{clipped(new)} goes first"
    if order.index(new) < order.index(old):
        return f"{clipped(new)} goes before {clipped(old)}"
    return "the order changes"


def _stale(_: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    if "drop_frac_now" in evidence:
        now, before = _share(evidence["drop_frac_now"]), _share(evidence["drop_frac_before"])
        name = clipped(evidence["filter"])
        yield f"{name} dropped {now} of the newest rows that reached it, and {before} before."
    elif "filter" in evidence:
        behind = order_text(evidence["given"], MOST_NAMED) if evidence.get("given") else ""
        of = f" of the rows behind {behind}" if behind else ""
        yield f"The share that {clipped(evidence['filter'])} drops{of} has changed."
    if costs_of := evidence.get("costs_of"):
        yield f"The cost of {_named(map(clipped, costs_of))} has changed."
    yield "Older evidence no longer counts."


def _recall(_: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    sampled, held = count(evidence["sampled_rows"]), count(evidence["held_for_rows"])
    yield (
        f"The {sampled} rows sampled last look like a situation that held for {held} rows before: "
        f"its plan comes back."
    )
    if moved := _moved(evidence["then"], evidence["now"]):
        yield moved


def _mistaken(_: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    yield "The rows that followed do not fit the situation that a plan was recalled for."
    if moved := _moved(evidence["taken_for"], evidence["now"]):
        yield moved


def _moved(then: Mapping[str, float], now: Mapping[str, float]) -> str:
    """Name the condition in which two situations differ most; empty if they share none."""
    shared = [name for name in now if name in then]
    if not shared:
        return ""
    name = max(shared, key=lambda each: abs(now[each] - then[each]))
    was, is_now = _share(then[name]), _share(now[name])
    return f"They differ most in {clipped(name)}: {was} then, {is_now} now."


def _routes(entry: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    if "saved_ns" in evidence:
        by = _named(map(clipped, entry.after["by"]))
        cost = evidence["routed_cost_ns"] + evidence["route_cost_ns"]
        yield (
            f"Rows that differ in {by} get orders of their own: a row is estimated to cost "
            f"{duration(cost)} instead of {duration(evidence['cost_ns'])}."
        )
        yield f"Measured on {count(evidence['n_rows'])} sampled rows."
    elif "route_cost_ns" in evidence:
        price = duration(evidence["route_cost_ns"])
        yield f"To tell classes of rows apart costs {price} a row, and no longer saves that."
    elif evidence["reason"]:
        yield _capital(f"{evidence['reason']}.")


_PLACES = {
    "early": "rows become cells before the shuffle",
    "late": "rows are shuffled as they are",
    "driver": "the driver answers the cells, without tasks for them",
}


def _place(entry: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    rows = f"A cell has {significant(evidence['rows_per_cell'])} rows on average"
    if "driver" in (entry.before, entry.after):
        rows += f", and the newest batch had {count(evidence['n_handled'])} to handle"
    yield f"{rows}: {_PLACES[entry.after]}."


def _grid(_: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    before, after = evidence["rows_in_fullest_before"], evidence["rows_in_fullest_after"]
    yield f"The fullest bucket gets {count(after)} of the newest rows instead of {count(before)}."


def _way(entry: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    goes = {
        "broadcast": "every task gets all of them",
        "buckets": "they are shuffled into buckets as the rows are",
    }
    rows, n_bytes = count(evidence["table_rows"]), size(evidence["table_bytes"])
    yield f"The tables have {rows} rows ({n_bytes}): {goes[entry.after]}."


def _caches(entry: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    before, after = set(entry.before), set(entry.after)
    changed = sorted(name for name in evidence if (name in before) != (name in after))
    for name in changed[:MOST_NAMED]:
        what = "is used from now on" if name in after else "is not used any more"
        yield f"The cache {clipped(name)} {what}{_worth(**evidence[name])}."
    if len(changed) > MOST_NAMED:
        yield f"So it is of {count(len(changed) - MOST_NAMED)} more."


def _worth(benefit_ns: float | None, cost_ns: float | None) -> str:
    """Say what a cache saves and costs; empty where one of both is not known."""
    if benefit_ns is None or cost_ns is None:
        return ""
    saves = f"saves {duration(benefit_ns)}" if benefit_ns > 0.0 else "saves nothing"
    return f": it is estimated that it {saves} and costs {duration(cost_ns)}"


def _sharing(entry: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(costs := evidence.get("estimated_ns"), dict):  # alarms
        priced = sorted(costs.items(), key=lambda pair: pair[1])
        said = _named(f"{duration(ns)} {name}" for name, ns in priced)
        yield f"A segment is estimated to cost {said}."
        yield f"It took {duration(evidence['took_ns'])} {entry.before}."
        return
    why = evidence["why"]
    if "drop_frac" in evidence:
        why += f": {_share(evidence['drop_frac'])} now"
    elif "before" in evidence:
        before, after = significant(evidence["before"]), significant(evidence["after"])
        why += f": {after} on average, {before} before"
    yield _capital(f"{why}.")
    if "statement_ns" in evidence:
        statement, matcher = duration(evidence["statement_ns"]), duration(evidence["matcher_ns"])
        yield f"A row is estimated to cost {statement} by one statement, {matcher} by the matcher."


def _named(names: Any) -> str:
    """Join names; of many, the rest is a number."""
    found = list(names)
    more = [f"{count(len(found) - MOST_NAMED)} more"] if len(found) > MOST_NAMED else []
    return ", ".join((*found[:MOST_NAMED], *more))


def _share(frac: float) -> str:
    """Write a share in a sentence: whole per cents from 1 % on.

    >>> _share(0.0), _share(0.3912), _share(0.004), _share(1.0)
    ('0 %', '39 %', '0.4 %', '100 %')
    """
    if not math.isfinite(frac):
        raise ValueError(frac)
    is_whole = frac in (0.0, 1.0) or 0.01 <= frac <= 0.99
    return f"{100.0 * frac:.0f} %" if is_whole else percent(frac)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_WRITERS: dict[str, Callable[[JournalEntry, Mapping[str, Any]], Iterator[str]]] = {
    "caches": _caches,
    "grid": _grid,
    "mistaken": _mistaken,
    "order": _order,
    "place": _place,
    "recall": _recall,
    "routes": _routes,
    "sharing": _sharing,
    "stale": _stale,
    "way": _way,
}
