"""Learned state: the attributes that a component saves and continues from.

A component derives from ``Learns`` and names these attributes in ``learned``. ``snapshot`` returns
their values as JSON knows them, ``restore`` puts them back. An attribute is a number, a truth
value, a text, a tuple of these, an array, or a component that has state of its own.

A saved value has to be of the type that the attribute has now. An array has to have its dtype and
its shape, but for the length of those in ``growing``. Everything else is damage: a ``StateError``
that names the component and the attribute.

A component whose state is one struct, or plain values in containers, returns it from ``snapshot``
and continues from what ``restored`` makes of it.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NoReturn, TypeVar

import msgspec
import numpy as np

from eddyline.data.arrays import pack, unpack
from eddyline.errors import StateError

StateT = TypeVar("StateT")

MOST = 2**63
"""Whole numbers are smaller than this, as those of arrays are."""


class Learns:
    """A component that saves some of its attributes; derive from it."""

    learned: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that are saved; a component without any saves nothing."""
    growing: ClassVar[tuple[str, ...]] = ()
    """Arrays among them that may be longer or shorter when they are restored."""

    def snapshot(self) -> Any:
        """Return the learned state as plain values (JSON)."""
        return {name.lstrip("_"): _plain(getattr(self, name)) for name in self.learned}

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: the state is damaged, or of another component.
        """
        keys = {name.lstrip("_"): name for name in self.learned}
        if not isinstance(state, dict) or state.keys() != keys.keys():
            self._damaged(f"it has not exactly {', '.join(keys) or 'nothing'}: {state!r:.80}")
        for key, name in keys.items():
            now = getattr(self, name)
            if callable(getattr(now, "restore", None)):
                now.restore(state[key])
            else:
                setattr(self, name, self._fitting(name, now, state[key]))
        self.check_learned()

    def check_learned(self) -> None:
        """Raise StateError if restored values do not fit together; see ``_damaged``."""

    def _fitting(self, name: str, now: Any, saved: Any) -> Any:
        """Return a saved value in place of one of the same type."""
        if isinstance(now, np.ndarray):
            try:
                array = unpack(saved)
            except StateError as error:
                self._damaged(f"{name} is {error.message}")
            is_long = name in self.growing and array.ndim
            shape = (len(array), *now.shape[1:]) if is_long else now.shape
            if array.dtype != now.dtype or array.shape != shape:
                self._damaged(f"{name} is {array.dtype} {array.shape}, not {now.dtype} {shape}")
            return array
        if isinstance(now, tuple):
            if not isinstance(saved, list | tuple) or len(saved) != len(now):
                self._damaged(f"{name} is {saved!r:.80}, not a list of {len(now)}")
            return tuple(map(self._fitting, [name] * len(now), now, saved))
        is_whole = type(saved) is int and -MOST < saved < MOST
        if isinstance(now, float):
            is_fitting = is_whole or (type(saved) is float and math.isfinite(saved))
        else:
            is_fitting = is_whole if type(now) is int else type(saved) is type(now)
        if not is_fitting:
            self._damaged(f"{name} is {saved!r:.80}, no {type(now).__name__}")
        return type(now)(saved)

    def _damaged(self, what: str) -> NoReturn:
        component = getattr(self, "component", type(self).__name__.lstrip("_"))
        msg = f"the saved state of {component!r} is damaged: {what}; start from an empty checkpoint"
        raise StateError(msg, component=component)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return pack(value)
    if callable(getattr(value, "snapshot", None)):
        return value.snapshot()
    return list(value) if isinstance(value, tuple) else value


def restored(state: Any, kind: type[StateT], what: str, **facts: str) -> StateT:
    """Return learned state that was decoded from JSON as the kind that was saved.

    Args:
        state: what ``snapshot`` returned, or its values as JSON knows them.
        kind: the type of the state, such as a struct.
        what: the subject of the state in words, such as "the clusters of a join's keys".
        **facts: of the error.

    Raises:
        StateError: it is damaged.
    """
    try:
        return msgspec.convert(state, kind, str_keys=True)
    except msgspec.ValidationError as error:
        msg = f"what was learned of {what} cannot be read: {error}"
        raise StateError(msg, **facts) from error
