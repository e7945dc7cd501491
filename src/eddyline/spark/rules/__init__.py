"""Rules on Spark: one operator that follows a set, one Arrow UDF over all of its rules.

``rule_set`` is the face of a set; ``binding`` reads rules over columns, ``operator`` lays and
learns, ``task`` runs in workers. Imports ``rules/``, its words in ``report/``, and no other
operator.
"""
