"""Everything that merges: profiles, their window, costs, attributes of sampled rows.

Imports ``data/`` alone.
"""
