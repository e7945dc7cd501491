"""How many examples Hypothesis draws: few by default, many for ``make test-all EXAMPLES=all``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

Drawn = TypeVar("Drawn")

FEW, MANY = "few", "all"
"""Profiles: the default, and that of ``make test-all EXAMPLES=all``."""

N_EXAMPLES = {FEW: 12, MANY: 100}


def register() -> None:
    """Make the profiles known and take the default; ``--hypothesis-profile`` takes the other."""
    for name, n_examples in N_EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=n_examples,
            deadline=None,
            derandomize=True,
            # To leave out a case takes no time beside the Spark jobs of those that stay.
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        )
    settings.load_profile(FEW)


def are_few() -> bool:
    """Return whether few are drawn, as CI does."""
    return settings().max_examples < N_EXAMPLES[MANY]


def examples(n_examples: int, *, few: int | None = None, **more: Any) -> settings:
    """Return the settings of a test with a number of examples of its own.

    Args:
        n_examples: of the profile with many; others take the share that they have of them.
        few: of the profile with few, where that share takes too long.
        **more: other settings.
    """
    share = settings().max_examples / N_EXAMPLES[MANY]
    if few is not None and are_few():
        return settings(max_examples=few, **more)
    return settings(max_examples=max(1, round(n_examples * share)), **more)


def is_drawn(strategy: SearchStrategy[Drawn], condition: Callable[[Drawn], Any]) -> bool:
    """Return whether a strategy draws what meets a condition; no smaller example is looked for."""
    generate = settings(max_examples=2_000, phases=[Phase.generate])
    try:
        find(strategy, condition, settings=generate)
    except NoSuchExample:
        return False
    return True
