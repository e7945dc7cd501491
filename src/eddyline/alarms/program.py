"""Alarms of one moment, sorted by what they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.templates import Templates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.alarms.definitions import Alarm
    from eddyline.alarms.entities import EntityRules
    from eddyline.alarms.templates import Template
    from eddyline.data.arrays import Ints
    from eddyline.models.solving.expressions import Expression


@dataclass(frozen=True, eq=False)
class AlarmProgram:
    """Alarms over segments with some keys and attributes.

    Attributes:
        names: of the alarms, ``[n]``.
        definitions: ``Alarm.definition`` of each, ``[n]``.
        key_of: the condition on keys of each by its place among ``keys``, -1 for none, ``[n]``.
        keys: the conditions on keys; None if there are none.
        bases: the expressions that are compared with constants.
        templates: the conditions on models.
        whole: the alarms without one, by their places.
    """

    names: tuple[str, ...]
    definitions: Ints
    key_of: Ints
    keys: EntityRules | None
    bases: tuple[Expression, ...]
    templates: tuple[Template, ...]
    whole: Ints


def program_of(
    alarms: Sequence[Alarm], compiled: Callable[[Mapping[str, str]], EntityRules]
) -> AlarmProgram:
    """Return the program of alarms over the same keys and attributes.

    Args:
        alarms: their names differ.
        compiled: compiles conditions on keys, each with the first alarm that has it; called if
            there are some.
    """
    templates, texts = Templates(), dict[str, str]()
    for at, each in enumerate(alarms):
        if each.condition is not None:
            templates.add(at, each.condition)
        if each.keys is not None:
            texts.setdefault(each.keys, each.name)
    places = {text: at for at, text in enumerate(texts)}
    key_of = [-1 if each.keys is None else places[each.keys] for each in alarms]
    return AlarmProgram(
        names=tuple(each.name for each in alarms),
        definitions=np.array([each.definition for each in alarms], np.int64),
        key_of=np.array(key_of, np.int64),
        keys=compiled(texts) if texts else None,
        bases=tuple(templates.bases),
        templates=templates.all(),
        whole=np.flatnonzero([each.condition is None for each in alarms]),
    )
