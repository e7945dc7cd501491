"""The plan that is learned against the best fixed one in hindsight, at fixed prices of work.

Templates with different best plans; on drifting signals their comparisons change places every so
many batches. Nothing is timed, so values repeat exactly; what a profile costs is not in them but
timed beside (``alarms_profile``).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.alarms.data import fixed, program_over, segments_of, swept
from benchmarks.alarms.prices import observed, priced
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.timing import on_over_off, seconds_of, times_told
from eddyline.alarms.loop import SAMPLE_EVERY, AlarmLoop
from eddyline.alarms.plan import SHARINGS, AlarmPlan, TemplatePlan
from eddyline.alarms.program import AlarmProgram
from eddyline.alarms.ranges import Observing
from eddyline.alarms.sweep import Sweep
from eddyline.models.segments import Segments
from eddyline.options import AlarmOptions

ROWS = 2_000
PERIOD = 20
"""Batches after which drifting signals change."""

TEMPLATES: dict[str, dict[str, str]] = {
    "thresholds": {f"a{at}": f"x < {-2 + at / 25}" for at in range(50)},
    "second first": {
        f"a{at}": f"x < {2.5 + at / 100} AND y < {-2.5 - at / 100}" for at in range(20)
    },
    "far apart": {f"a{at}": f"x = {4 * side} AND y < 3" for at, side in enumerate((-1, 1))},
    "one": {"a": "x < -1 AND y < 0"},
    "three": {f"a{at}": f"x < {1 - at / 10} AND y < {-at / 10}" for at in range(3)},
}


def _batches(n: int, *, drifts: bool) -> list[Segments]:
    """Return blocks of lines, of which ``x`` and ``y`` change places where they drift."""
    found = []
    for at in range(n):
        rng = np.random.default_rng([at, 96])
        one, other = (
            np.stack([rng.normal(0, 1, ROWS), rng.normal(0, 0.02, ROWS)], axis=1) for _ in "xy"
        )
        if drifts and at // PERIOD % 2:
            # What nearly all met, next to none do, and the other way round.
            one[:, 0], other[:, 0] = one[:, 0] + 5, other[:, 0] - 5
        found.append(segments_of({"x": one, "y": other}))
    return found


def _learned(program: AlarmProgram, batches: Sequence[Segments]) -> tuple[int, list[str]]:
    """Return what batches take with a plan that is learned (ns), and the changes of plan."""
    loop, total, changes = AlarmLoop(AlarmOptions(), program), 0, []
    for at, segments in enumerate(batches):
        _, profile, ns = observed(program, segments, loop.plan, samples=loop.wants_sample)
        total += ns
        changes += [each.event for each in loop.step(profile, at) if each.is_plan_change]
    return total, changes


def _fixed_plans(program: AlarmProgram) -> dict[str, AlarmPlan]:
    (template,) = program.templates
    orders = itertools.permutations(range(len(template.conjuncts)))
    return {
        f"{sharing} {order}": {template.text: TemplatePlan(sharing, order)}
        for order in orders
        for sharing in SHARINGS
    }


def regret(settings: Settings, *, drifts: bool) -> Measurement:
    """Return the work with plans that are learned over that of the best fixed plan of each."""
    batches = _batches(settings.pick(4 * PERIOD, 2 * PERIOD), drifts=drifts)
    ours, best, told = 0, 0, {}
    for name, texts in TEMPLATES.items():
        program = program_over(batches[0], texts)
        learned, changes = _learned(program, batches)
        plans = _fixed_plans(program)
        each = {key: sum(priced(program, s, plan) for s in batches) for key, plan in plans.items()}
        way = min(each, key=lambda key, of=each: of[key])  # type: ignore[misc]
        ours, best = ours + learned, best + each[way]
        told[name] = {"ratio": learned / each[way], "best": way, "changes": changes}
    note = ", ".join(f"{k} {v['ratio']:.3f} ({v['best']})" for k, v in told.items())
    return Measurement(ours / best, note, told)


def profile(settings: Settings) -> Measurement:
    """Return the time of blocks with a profile over that without, all templates together.

    One of so many has a sample of values, as those of a stream have.
    """
    segments = _batches(1, drifts=False)[0]
    texts = {f"{kind} {k}": v for kind, own in TEMPLATES.items() for k, v in own.items()}
    program = program_over(segments, texts)
    plan = fixed(program, "covered")

    def run(is_on: bool) -> None:
        for at in range(SAMPLE_EVERY):
            if not is_on:
                swept(program, segments, plan)
                continue
            observing = Observing(program, segments, samples=at == 0)
            none = np.zeros((0, 0), np.bool_)
            observing.run(Sweep(program, segments, none, plan, observing.tally), plan)

    n_runs = settings.pick(31, 5)
    value, control, times = on_over_off(run, n_runs, clock=time.process_time)
    return Measurement(value, f"control {control:.2f}; {times_told(times)}", seconds_of(times))


RUNS: Runs = {
    "alarms_stationary": lambda settings: regret(settings, drifts=False),
    "alarms_drifting": lambda settings: regret(settings, drifts=True),
    "alarms_profile": profile,
}
