"""Ordering policies: choice of the cheapest order of filters.

In: profiles of sampled rows and the order in force. Out: a ``Proposal`` of another order, with its
evidence. A policy never sees rows, and the same evidence always gives the same proposals.

Read ``protocol`` (what a policy is, ``Fixed``, the smallest one, and the matrix view: what each
filter drops behind those before it), ``a_greedy`` (the default), then ``sweep``, ``local_swaps``
and ``independent``, which sample less and know less.

A policy is one file with its options; a line of ``ORDERING_POLICIES`` registers it. Other packages
add policies with entry points of the group ``eddyline.ordering``. Imports ``data/`` and ``stats/``,
and no other technique.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from eddyline import registry
from eddyline.errors import OptionError
from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.independent import IndependentOptions
from eddyline.ordering.local_swaps import LocalSwapsOptions
from eddyline.ordering.protocol import FixedOptions
from eddyline.ordering.sweep import SweepOptions

if TYPE_CHECKING:
    from eddyline.ordering.protocol import PolicyOptions

GROUP = "eddyline.ordering"
"""Entry-point group of policies from other packages."""

ORDERING_POLICIES: dict[str, type[PolicyOptions]] = {
    "a_greedy": AGreedyOptions,
    "sweep": SweepOptions,
    "independent": IndependentOptions,
    "local_swaps": LocalSwapsOptions,
    "fixed": FixedOptions,
}
"""Policies by name."""


def policy(spec: str | PolicyOptions) -> PolicyOptions:
    """Return the options of a policy that is given by name, or check those that are given.

    Args:
        spec: a name of ``ORDERING_POLICIES`` or of an installed package, or an options object.

    Raises:
        OptionError: the name is unknown, or the object is not the options of a policy.
        PluginError: an installed package offers the name but failed to load.

    >>> policy("sweep").stage_rows
    500
    """
    if isinstance(spec, str):
        return registry.look_up("ordering policy", ORDERING_POLICIES, spec, group=GROUP)()
    options: Any = spec
    if isinstance(options, type) or not callable(getattr(options, "build", None)):
        msg = (
            f"policy must be a name or an options object such as AGreedyOptions(), got {options!r}"
        )
        raise OptionError(msg, policy=repr(options))
    return cast("PolicyOptions", options)


__all__ = ["ORDERING_POLICIES", "policy"]
