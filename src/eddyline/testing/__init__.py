"""For tests of extensions: generated streams, conformance checks, a simulated loop.

In: an ordering policy, a change detector or a monitor that somebody writes. Out: an AssertionError
that says what is broken, or what the policy would do on a stream with known answers.

Invariant: everything here is public, is drawn from a given seed, and counts work instead of timing
it. So two runs give the same numbers.

Read ``conformance`` and ``detector_conformance`` (what each policy and detector must pass) and
``generators`` (streams whose filters are correlated by a known amount). Then ``simulation`` (the
loop without an engine) and ``reference_orders`` (orders to compare with).

A new check that every policy must pass goes to ``conformance``; one for detectors goes to
``detector_conformance``. Oracles, data and strategies of eddyline's own operators are not public:
they stand in ``tests/oracles/``. The room imports any room; no other room imports it.
"""
