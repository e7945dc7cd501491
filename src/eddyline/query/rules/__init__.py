"""Reader of rules: from text to a tree of tests.

In: the text of a rule or a predicate, and the columns of an input. Out: a rule of ``conditions``,
which is a tree of tests on one operand each.

Invariant: a test stands for a part of the text only where it says exactly what Spark says, NULL and
errors included. Any other part stays a condition that Spark evaluates.

Read ``rule`` (``el.Rule``, what people write), then ``sources`` (rules before they know columns)
and ``reading`` (takes texts apart). A new type of node that becomes tests is a function in
``reading`` and a line of ``READERS``. A new source of rules has the ``bind`` of
``conditions.RuleSource``. Imports ``sql/`` and ``query/``.
"""
