"""A predicate ``looks_odd``."""

import pyarrow.compute as pc

import eddyline as el


@el.predicate("light", "humidity")
def looks_odd(light, humidity):
    return pc.greater(light, humidity)
