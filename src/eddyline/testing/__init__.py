"""For tests of eddyline and of extensions: generators, oracles, a simulated loop, checks.

``generators``, ``simulation``, ``reference`` and ``conformance`` need nothing beyond eddyline;
``strategies`` needs hypothesis.
"""
