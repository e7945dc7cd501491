"""Rules on Spark: one operator that follows a set, one Arrow UDF over all of its rules.

``rule_set`` is the face of a set; ``binding`` reads rules over columns, ``operator`` lays and
learns, ``output`` makes results, ``udf`` and ``task`` run in workers, ``correlations`` makes alerts
of matches. Imports ``rules/``, its words in ``watch/``, and no other operator.
"""
