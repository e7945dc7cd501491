"""The adaptive loop of any operator: protocols, reports, budget, journal, snapshots, monitors.

Free of Spark, and names no operator. Imports techniques (``ordering/``, ``change/``, ``routing/``)
and ``stats/``.
"""
