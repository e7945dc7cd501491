"""Arrays without meaning of their own: outcome codes, sampling, distinct values, packing, kernels.

Everything here is NumPy, Arrow and numba over plain arrays. Imports nothing of eddyline but
``errors``, ``options`` and ``registry``.
"""
