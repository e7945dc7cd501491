"""Detectors of changes in the distribution of a stream of numbers.

In: numbers, one at a time for each of n streams. Out: which streams changed, and since which item.
A detector depends on its own items alone: a bank finds what n single detectors find.

Read ``protocol`` (the states of a detector, banks, a single detector), ``machine`` (the
transitions, once for all banks), ``scalar`` (detectors written for one stream, and river's), then
the detectors: ``adwin``, ``beta_cusum``, ``martingale``, ``meta``,
``change_finder``, ``cusum``, ``page_hinkley``; and ``preprocessing``, which removes outliers and
smooths before any of them.

A detector is one file with its options; a line of ``DETECTORS`` registers it. Other packages add
detectors with entry points of the group ``eddyline.change``; detectors of river plug in as they
are. Imports ``data/`` and no other technique. Importing this room loads neither numba nor scipy.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from eddyline import registry
from eddyline.change.adwin import AdwinOptions
from eddyline.change.beta_cusum import BetaCusumOptions
from eddyline.change.change_finder import ChangeFinderOptions
from eddyline.change.cusum import CusumOptions
from eddyline.change.martingale import MartingaleOptions
from eddyline.change.meta import MetaOptions
from eddyline.change.page_hinkley import PageHinkleyOptions
from eddyline.change.preprocessing import PREPROCESSORS, Preprocessed, preprocessors_of
from eddyline.change.protocol import Detector
from eddyline.change.scalar import RiverOptions, is_river_like
from eddyline.errors import OptionError
from eddyline.options import check_names

if TYPE_CHECKING:
    from eddyline.change.protocol import DetectorBank, DetectorOptions

GROUP = "eddyline.change"
"""Entry-point group of detectors from other packages."""

DETECTORS: dict[str, type[DetectorOptions]] = {
    "beta_cusum": BetaCusumOptions,
    "adwin": AdwinOptions,
    "martingale": MartingaleOptions,
    "meta": MetaOptions,
    "change_finder": ChangeFinderOptions,
    "cusum": CusumOptions,
    "page_hinkley": PageHinkleyOptions,
}
"""Detectors by name."""


def options_of(
    spec: str | DetectorOptions | Any, *, preprocess: Any = None, **options: Any
) -> DetectorOptions:
    """Return the options of a detector, with some of them changed.

    Args:
        spec: a name of ``DETECTORS`` or of an installed package, an options object, or a detector,
            also one of river.
        preprocess: what items pass before the detector sees them: a name of ``PREPROCESSORS``, an
            options object, or a sequence of these.
        **options: options to set.

    Raises:
        OptionError: the name or an option is unknown, a value is out of range, or the object is
            nothing of the above.
        PluginError: an installed package offers the name but failed to load.

    >>> options_of("adwin", check_every=32).check_every
    32
    """
    steps = preprocessors_of(preprocess)
    if steps:
        return Preprocessed(options_of(spec, **options), steps)
    if isinstance(spec, str):
        kind = registry.look_up("detector", DETECTORS, spec, group=GROUP)
        _check_names(kind, options)
        return kind(**options)
    named: Any = spec.options if isinstance(spec, Detector) else spec
    if isinstance(named, Preprocessed):
        return replace(named, detector=options_of(named.detector, **options))
    if is_river_like(named):
        named = RiverOptions(named)
    if isinstance(named, type) or not callable(getattr(named, "build", None)):
        msg = "a detector is a name, an options object such as AdwinOptions(), or a detector of "
        msg += f"river, got {spec!r:.60}"
        raise OptionError(msg, detector=repr(spec))
    _check_names(type(named), options)
    return cast("DetectorOptions", replace(named, **options) if options else named)


def detector(spec: str | DetectorOptions | Any, /, **options: Any) -> Detector:
    """Return a detector that watches one stream of numbers for changes.

    Args:
        spec: a name (``beta_cusum``, ``adwin``, ``page_hinkley``…), an options object, or a
            detector of river.
        **options: options to set, and ``preprocess``; see docs/change_detection.md.

    Raises:
        OptionError: the name or an option is unknown, or a value is out of range.

    >>> watched = detector("beta_cusum", threshold=50)
    >>> watched.update(0.31)
    >>> watched.drift_detected
    False
    """
    return Detector(options_of(spec, **options))


def detector_bank(spec: str | DetectorOptions | Any, n: int, /, **options: Any) -> DetectorBank:
    """Return n detectors of one kind, each over its own stream, updated by one call.

    Args:
        spec: a name, an options object, or a detector of river (n clones).
        n: how many detectors (≥ 0).
        **options: options to set, and ``preprocess``.

    Raises:
        OptionError: the name or an option is unknown, or a value is out of range.

    >>> import numpy as np
    >>> bank = detector_bank("adwin", 3)
    >>> bank.update(np.array([0.2, np.nan, 0.7]))
    array([False, False, False])
    >>> bank.n_seen
    array([1, 0, 1])
    """
    return options_of(spec, **options).build(n)


def _check_names(kind: type, options: dict[str, Any]) -> None:
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    check_names(f"option of {kind.__name__}", options, names)


__all__ = ["DETECTORS", "PREPROCESSORS", "Detector", "detector", "detector_bank", "options_of"]
