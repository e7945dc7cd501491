"""Decisions in words, whatever operator took them.

* ``decision_texts``, ``Decision`` and ``last_change``: one entry of the journal, with its plans and
  its evidence in the words of its operator (``formatting.Wording``).
* ``sentence``: why a decision was taken. Evidence without words of its own gives no sentence, so a
  journal of another version stays readable.
* ``choice_sections``: the plan in force of each choice, and whether it may change.
* ``pin_lines``, ``pin_sections``: plans that a person pinned, and what the evidence says of them.
* ``log_sections``: what adapting brought, from the log of plans.
* ``ROUTING``: the words of classes of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eddyline.report.formatting import (
    TIMES,
    Wording,
    clipped,
    count,
    counted,
    duration,
    evidence_text,
    finite,
    order_text,
    percent,
    plan_text,
    ratio,
    significant,
    size,
    times,
    value_text,
)
from eddyline.report.sections import Facts, Section, Text
from eddyline.runtime.by_hand import BY_PERSON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eddyline.report.formatting import Wordings
    from eddyline.runtime.by_hand import PinView
    from eddyline.runtime.choice import Advice, Choice
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.plan_log import LogView


SAME_WORDS = "the parts are others, or in another order"
"""Said of two plans that differ in what words do not show."""


def decision_texts(entry: JournalEntry, wordings: Wordings) -> tuple[str, str, str]:
    """Write the plans before and after a decision, and its evidence."""
    wording = wordings.get((entry.component, entry.event), Wording())
    evidence = evidence_text(entry.evidence, wording.evidence)
    return *wording.change(entry.before, entry.after), evidence


def last_change(entry: JournalEntry | None, wordings: Wordings | None = None) -> list[Section]:
    """Return the last change of a plan, if there was one, in the words of its operator."""
    if entry is None:
        return []
    before, after, evidence = decision_texts(entry, wordings or {})
    pairs = [("before", before), ("after", after)] if before != after else []
    if before == after and entry.before is not None:
        pairs = [("plan", f"{after} ({SAME_WORDS})")]
    if why := sentence(entry):
        pairs.append(("why", why))
    if entry.evidence:
        pairs.append(("evidence", evidence))
    when = f"after batch {entry.batch_id}" if entry.batch_id >= 0 else "in a job of its own"
    title = f"last change: {entry.component} {entry.event}, {when}"
    return [Section(title, (Facts(tuple(pairs)),))]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision as a page shows it."""

    entry: JournalEntry
    before: str
    after: str
    evidence: str
    why: str
    """The evidence in sentences; empty where there are no words for it."""
    number: int
    """Its place in the journal, from 1."""
    effect: str
    """What it brought; empty where that is not known."""

    @property
    def is_of_person(self) -> bool:
        """Whether a person took it, and not the run."""
        return self.entry.evidence.items() >= BY_PERSON.items()


def told(entry: JournalEntry, wordings: Wordings, *, number: int = 0, effect: str = "") -> Decision:
    """Return a decision with its plans, its evidence in the words of its operator, and why."""
    before, after, evidence = decision_texts(entry, wordings)
    if before == after:
        before = f"{SAME_WORDS}:" if entry.before is not None else ""
    return Decision(entry, before, after, evidence, sentence(entry), number, effect)


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
        phrase = _named(f"{significant(n)} rows of {clipped(name)}" for name, n in pairs)
        yield f"A row is joined with {phrase} on average."
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
        phrase = f" of the rows behind {behind}" if behind else ""
        yield f"The share that {clipped(evidence['filter'])} drops{phrase} has changed."
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
    name = max(shared, key=lambda condition: abs(now[condition] - then[condition]))
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
    if "rows_per_cell" not in evidence:
        yield f"The first batch has {count(evidence['n_rows'])} rows: {_PLACES[entry.after]}."
        return
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


def _results(entry: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    products = "products of counts and sums by key"
    goes = {"products": products, "combinations": "combinations, one by one"}
    pairs, n_products = count(evidence["n_combinations"]), count(evidence["n_products"])
    yield f"The join found {pairs} combinations, which are {n_products} {products} or fewer."
    yield f"The aggregate gets {goes[entry.after]}."


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
        prices = _named(f"{duration(ns)} {name}" for name, ns in priced)
        yield f"A segment is estimated to cost {prices}."
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
    listed = list(names)
    more = [f"{count(len(listed) - MOST_NAMED)} more"] if len(listed) > MOST_NAMED else []
    return ", ".join((*listed[:MOST_NAMED], *more))


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


def _alarm(_entry: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{clipped(evidence['series'])} has changed since batch {count(evidence['since_batch'])}, "
        f"says {clipped(evidence['detector'])}."
    )
    if "mean_before" in evidence:
        before, after = significant(evidence["mean_before"]), significant(evidence["mean_after"])
        yield f"It was {before} on average, and is {after} since then."


def _unmatched(_entry: JournalEntry, evidence: Mapping[str, Any]) -> Iterator[str]:
    yield f"No series has the watched name {clipped(evidence['watch'])!r} yet."
    yield f"The names are {_named(map(clipped, evidence['known']))}."


_WRITERS: dict[str, Callable[[JournalEntry, Mapping[str, Any]], Iterator[str]]] = {
    "alarm": _alarm,
    "caches": _caches,
    "grid": _grid,
    "mistaken": _mistaken,
    "order": _order,
    "place": _place,
    "recall": _recall,
    "results": _results,
    "routes": _routes,
    "sharing": _sharing,
    "stale": _stale,
    "unmatched": _unmatched,
    "way": _way,
}


CHOSEN = "plans in force"


def choice_sections(choices: Sequence[Choice]) -> list[Section]:
    """Return the plan of each choice, by the component that pins and the journal name it by."""
    pairs = tuple((choice.component, _choice_text(choice)) for choice in choices)
    return [Section(CHOSEN, (Facts(pairs),))] if pairs else []


def _choice_text(choice: Choice) -> str:
    if choice.is_held:
        change = "held by a person"
    else:
        change = "adapts" if choice.is_adaptive else "does not adapt"
    return f"{plan_text(choice.in_words(choice.plan)) or 'none'}; {change}"


PINNED = "pinned by a person"


def pin_lines(pins: Sequence[PinView]) -> tuple[str, ...]:
    """Return the components that are pinned on a line, for the progress; none if there is none."""
    return (f"pinned: {', '.join(pin.component for pin in pins)}",) if pins else ()


def pin_sections(pins: Sequence[PinView]) -> list[Section]:
    """Return what is pinned since when, and what the evidence says of it."""
    pairs = tuple((pin.component, _pin_text(pin)) for pin in pins)
    return [Section(PINNED, (Facts(pairs),))] if pins else []


def _pin_text(view: PinView) -> str:
    since = f"after batch {view.pin.batch_id}" if view.pin.batch_id >= 0 else "before batch 0"
    begins = "" if view.is_in_force else ", in force from the next batch on"
    phrase = f"{plan_text(view.words)}: pinned by a person {since}{begins}"
    return f"{phrase}; {_advice_text(view)}" if view.is_in_force and view.advice else phrase


def _advice_text(view: PinView) -> str:
    assert view.advice is not None
    advice: Advice = view.advice
    if advice.plan == view.words:
        return "the evidence calls no other better"
    if finite(advice.cost_ns) is None:
        return f"the evidence calls {plan_text(advice.plan)} better"
    return (
        f"the evidence says the best order, {plan_text(advice.plan)}, would cost "
        f"{duration(advice.cost_ns)} a row, this one {duration(advice.held_cost_ns)}"
    )


LITTLE_WORK = 0.005
"""Share of the work below which a difference is none: samples tell it no better."""

BROUGHT = "what adapting brought"

LOG_NOTE = (
    "Estimates from the rows that were sampled in each situation: the work of the plans that were "
    "in force, and that of the best single one all the time. What learning took is in neither. "
    "Where tasks learn, the rows of a batch count for the plan that it ended with."
)


def log_sections(views: Sequence[LogView]) -> list[Section]:
    """Return what the plans in force cost beside the best single one, by component."""
    pairs = tuple((view.component, _log_text(view)) for view in views)
    if all(view.why_not or not view.n_rows for view in views):
        return []
    return [Section(BROUGHT, (Text(LOG_NOTE), Facts(pairs)))]


def _log_text(view: LogView) -> str:
    if view.why_not:
        return f"not known: {view.why_not}"
    if not view.n_rows:
        return "not known yet"
    return "; ".join(filter(None, (_saved(view), _basis(view), _recalls(view))))


def _saved(view: LogView) -> str:
    """Say what was saved against the best single plan."""
    seen = view.hindsight
    if finite(seen.best_cost) is None:
        return "no plan that was in force can be priced in all situations"
    best = f"the best single plan, {plan_text(seen.best)} ({_cost(seen.best_cost, view)})"
    if finite(seen.saved) is None:
        return f"{best}; what was in force cannot be priced"
    if abs(seen.saved) < LITTLE_WORK:
        return f"the plans in force cost as much as {best}"
    how = times(ratio(seen.best_cost, seen.cost))
    return f"the plans in force cost {how} ({_cost(seen.cost, view)}) than {best}"


def _cost(cost: float, view: LogView) -> str:
    amount = duration(cost) if view.unit == "ns" else f"{significant(cost)} {view.unit}"
    return f"{amount} per {view.per}"


def _basis(view: LogView) -> str:
    """Say what the estimate is of."""
    share = ratio(view.n_rows, view.n_rows + view.n_left_out)
    rows = f"{counted(view.n_situations, 'situation')} with {percent(share)} of the rows"
    n_unpriced = view.hindsight.n_unpriced
    left_out = f", {count(n_unpriced)} without a price left out" if n_unpriced else ""
    return f"{rows}; {counted(view.hindsight.n_plans, 'plan')} in force{left_out}"


def _recalls(view: LogView) -> str:
    if not (view.n_right or view.n_mistaken):
        return ""
    right = f"{counted(view.n_right, 'plan')} recalled"
    return f"{right}, {count(view.n_mistaken)} by mistake" if view.n_mistaken else right


def _routes_text(plan: Any) -> str:
    if not isinstance(plan, dict):
        return value_text(plan)
    return f"classes by {', '.join(map(str, plan['by']))} in {len(plan['orders'])} orders"


def _told_by(filters: Mapping[str, Any]) -> str:
    """Write the attribute that tells best what a filter drops, by filter."""
    return ", ".join(
        f"{clipped(name)} by {clipped(str(best['attribute']))} ({significant(best['gain_ratio'])})"
        for name, best in filters.items()
    )


ROUTING = Wording(_routes_text, {"filters": _told_by})
"""Words for another table of routes."""
