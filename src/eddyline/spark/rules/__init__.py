"""Rules on Spark: one operator per set, one Arrow UDF.

The operator follows the set while rules change. In come a rule set and rows. Out come the rules
that each row meets, in the output that was asked for: a column of names, the rows that match or do
not, or counts by rule. Invariant: a rule is true on a row if and only if Spark's WHERE keeps the
row, whatever the plan and the other rules.

Read ``rule_set`` (the face of a set), ``binding`` (rules over the columns of an input),
``operator`` (lays and learns), ``output`` (results), then ``udf`` and ``task`` (what Python workers
do). ``correlations`` makes alerts of matches. A new output is a class of ``output``. The room
imports ``rules/``, its words in ``report/``, and no other operator.
"""
