"""For tests of extensions: generated streams, conformance checks, a simulated loop.

In: an ordering policy, a detector or a monitor that somebody writes. Out: an AssertionError with
what is broken, or what the policy would do. Read ``conformance`` and ``detector_conformance`` (what
each policy and detector must pass), ``generators`` (streams with known correlations),
``simulation`` (the loop without an engine) and ``reference_orders`` (orders to compare with).

It needs nothing beyond eddyline and may import any room; no other room imports it. Oracles, data
and strategies of eddyline's own operators stand in ``tests/oracles/``.
"""
