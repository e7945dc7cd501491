"""The order in which new rows of an input probe the windows of the others.

Code that decides, from samples. Imports ``joins/`` and ``ordering/``.
"""
