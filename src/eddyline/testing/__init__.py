"""For tests of eddyline and of extensions: generators, oracles, a simulated loop, checks.

``generators``, ``simulation``, ``reference`` and ``conformance`` need nothing beyond eddyline; what
is called ``strategies`` needs hypothesis, and ``reference_joins`` needs DuckDB.
"""
