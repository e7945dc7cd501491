"""Benchmarks of eddyline: ``python -m benchmarks list``; see docs/benchmarks.md."""
