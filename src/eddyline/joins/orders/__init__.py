"""Order of the probes of an input's new rows [Babu05 5.2].

``probe_profiling`` looks sampled rows up in all windows, in tasks. ``probe_order`` says which
windows may be ranked, and turns a ranking into an order. ``pipelines`` learns the order of each
pipeline.
Imports ``joins/`` and ``ordering/``.
"""
