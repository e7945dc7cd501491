"""Planning of rules: the way, access predicates, bitmap blocks, sequences.

In: a program, and the profile of the newest rows. Out: a ``SharingPlan``, with the price of each
way.

Invariant: code here decides and never sees rows. It draws nothing at random: the same profile gives
the same plan.

Read ``planner`` first, which calls the others and chooses between one statement of Spark's and the
matcher. ``access_predicates`` prices the rules and says which go to bitmap blocks.
``sequence_learning`` orders the attributes of a block, and ``python_order`` the tests of Python in
a rule.

A new kind of sequence is a line of ``planner.LEARNERS`` and of ``options.SEQUENCES``. A new way for
all rules is a case of ``planner.with_way``. When plans are made anew is decided in
``rules.choice``. Imports ``rules/compile``.
"""
