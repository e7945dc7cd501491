"""Slow oracles, data and strategies for tests and benchmarks of eddyline itself."""
