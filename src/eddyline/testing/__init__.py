"""For tests of extensions: generated streams, conformance checks, a simulated loop.

For whoever writes an ordering policy, a detector or a monitor. It needs nothing beyond eddyline and
may import any room; no other room imports it. Oracles, data and strategies of eddyline's own
operators stand in ``tests/oracles/``.
"""
