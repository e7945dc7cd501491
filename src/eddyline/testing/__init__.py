"""For tests of extensions: generators, conformance checks, a simulated loop, an oracle.

For whoever writes an ordering policy, a detector or a monitor. ``generators``, ``simulation``,
``reference`` and ``conformance`` need nothing beyond eddyline; ``strategies`` needs hypothesis. The
oracles of eddyline's own operators stand in ``tests/oracles/``. Nothing else imports this room.
"""
