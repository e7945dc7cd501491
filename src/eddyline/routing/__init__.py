"""Content-based routing: another order of the filters for each class of rows [Bizarro05].

A row's class is the combination of buckets that its attributes fall in. ``partitions`` says what a
bucket is, ``gain`` which attribute tells what a filter drops, ``table`` which class takes which
order, and ``router`` whether that pays.
"""
