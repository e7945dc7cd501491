"""What steps over segments will give, estimated, measured and used to plan what joins ask before.

``profile`` is what tasks saw, ``watching`` takes it, ``expected`` estimates from it what filters,
joins and windows give, ``ways`` prices what may be asked before a join, and ``loop`` chooses, by
estimates put right by what came true. Imports ``estimates/``, ``runtime/`` and steps and graphs of
``models/``.
"""
