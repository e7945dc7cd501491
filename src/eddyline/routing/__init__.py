"""Content-based routing: another order of the filters for each class of rows [Bizarro05].

A row's class is the combination of bins that its attributes fall in. ``partitions`` cuts attributes
into bins, ``gain`` measures how well an attribute tells what a filter drops, ``table`` gives
classes their orders, and ``router`` decides whether that pays. Imports ``data/`` and ``stats/``,
and no other technique.
"""
