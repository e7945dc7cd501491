"""Detectors of river as detectors of eddyline: n clones, asked one by one.

River's detectors have no feedback that can be told from checking, and forget by themselves when
they are next updated; so from outside they need no feedback and are not amnesic. river need not be
installed: what has ``update(x)``, ``drift_detected`` and ``clone()`` counts.
"""

from __future__ import annotations

import base64
import binascii
import io
import pickle
import zlib
from dataclasses import dataclass
from typing import Any

from eddyline.change.scalar import ScalarDetector, ScalarOptions
from eddyline.errors import StateError

_PARTS = {
    "builtins": {"object", "set", "frozenset", "complex", "bytearray", "range", "slice"},
    "copyreg": {"_reconstructor"},
    "numpy": {"ndarray", "dtype"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "random": {"Random"},
}
"""What a saved detector may consist of, beside classes of its own package and of collections."""


def is_river_like(given: Any) -> bool:
    """Return whether an object is a detector in river's convention."""
    methods = all(callable(getattr(given, name, None)) for name in ("update", "clone"))
    return methods and not isinstance(given, type) and hasattr(given, "drift_detected")


@dataclass(frozen=True, slots=True, eq=False)
class RiverOptions(ScalarOptions):
    """The options of a detector of river: a detector to clone."""

    prototype: Any
    """Never updated itself."""

    def build_one(self) -> FromRiver:
        """Return one fresh detector."""
        return FromRiver(self.prototype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RiverOptions) and _params(self) == _params(other)

    def __hash__(self) -> int:
        return hash(type(self.prototype))


def _params(options: RiverOptions) -> tuple[Any, Any]:
    held = options.prototype
    params = getattr(held, "_get_params", None)
    return type(held), params() if callable(params) else id(held)


class FromRiver(ScalarDetector):
    """One detector of river, checked item by item."""

    is_amnesic = False

    def __init__(self, prototype: Any) -> None:
        self._prototype = prototype
        self._held = prototype.clone()

    def initialize(self) -> None:
        """Start afresh with another clone."""
        self._held = self._prototype.clone()

    def check(self, item: float) -> bool:
        """Update river's detector and return whether it found a drift."""
        self._held.update(item)
        return bool(self._held.drift_detected)

    def get_change_point(self) -> int:
        """Return where the window of river's detector begins; the next item if it has none."""
        width = getattr(self._held, "width", None)
        return self.n_seen - int(width) if isinstance(width, int | float) else self.n_seen

    def snapshot(self) -> dict[str, Any]:
        """Return river's detector, pickled: it has no state of plain values."""
        body = zlib.compress(pickle.dumps(self._held))
        return {"pickle": base64.b64encode(body).decode("ascii")}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with a pickled detector; only classes that river's detectors consist of load.

        Raises:
            StateError: the state is damaged, or holds another class.
        """
        package = type(self._prototype).__module__.split(".")[0]
        try:
            body = zlib.decompress(base64.b64decode(state["pickle"], validate=True))
            held = _Unpickler(io.BytesIO(body), package).load()
        except (KeyError, TypeError, ValueError, binascii.Error, zlib.error, EOFError,
                AttributeError, ImportError, pickle.UnpicklingError) as error:  # fmt: skip
            msg = f"damaged state of a {type(self._prototype).__name__}: {error}"
            raise StateError(msg) from error
        if type(held) is not type(self._prototype):
            msg = f"the state is of a {type(held).__name__}, not of a "
            msg += f"{type(self._prototype).__name__}: restore the detector that was saved"
            raise StateError(msg)
        self._held = held


class _Unpickler(pickle.Unpickler):
    """Loads what detectors consist of: a checkpoint is no place to run code from."""

    def __init__(self, file: io.BytesIO, package: str) -> None:
        super().__init__(file)
        self._packages = {"river", "collections", package}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _public_method
        found = None
        if module.split(".", maxsplit=1)[0] in self._packages or name in _PARTS.get(module, ()):
            found = super().find_class(module, name)
        if isinstance(found, type) or name in _PARTS.get(module, ()):
            return found
        msg = f"{module}.{name} is not part of a detector"
        raise pickle.UnpicklingError(msg)


def _public_method(held: Any, name: str) -> Any:
    """Return a method of a detector, which some keep in an attribute."""
    # The instance has no attributes yet: its class says what it is.
    if name.startswith("__") or not hasattr(type(held), "drift_detected"):
        msg = f"{name} of a {type(held).__name__} is not part of a detector"
        raise pickle.UnpicklingError(msg)
    return getattr(held, name)
