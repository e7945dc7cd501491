"""Many rules over one stream, evaluated together.

Rules share predicates and are not evaluated one by one.

In: rules as trees of tests (``query.conditions``), and batches of rows. Out: the rules that are
true for each row, and counts from which the next plan is made.

Invariant: a plan says which rows meet which rules, and never which rules are true. After attribute
selection constructs [ASC], generalised to any boolean rule and to predicates on texts.

Read them in this order:

1. ``store``: the named rules of a set while they change.
2. ``compile/``: rules become a program, which is the same for every plan. ``plan``: how rows are
   looked at, and what is counted of that.
3. ``match/``: a program and a plan evaluate a batch.
4. ``planning/`` makes a plan from a profile. ``choice`` says when a new one pays; it is the
   ``Choice`` of the operator. ``warm_up`` compiles the kernels before the first rows come.
5. ``view`` (with its words) and ``description``: what people see.

A new kind of test is a class in ``query.conditions``; ``compile.program`` says what decides it. A
new way to find rules is a field of ``plan.SharingPlan``, with its price in ``planning/`` and its
code in ``match/``. What runs on Spark is in ``spark/rules``. Imports what stands above ``rules/``
and no other operator.
"""
