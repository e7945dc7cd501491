"""Match of rows against a program of rules.

Kernels find candidates; then the rest of each rule is evaluated.

In: the columns of a batch as Arrow arrays, a program and a plan. Out: pairs of a row and a rule
that is true, and the counts of a ``SharingProfile``.

Invariant: code here moves rows and decides no plan. Whatever the plan is, the pairs are the same.

Read ``matcher`` first: it takes a batch from its columns to its pairs, and has the postings (from a
literal to the rules that it may make true). ``bitmap_kernels`` looks
values up and selects by bitmap blocks; ``lower_case`` lowers texts, which ``compile.patterns``
walks. ``pair_kernels`` takes the candidates of access predicates and decides them. ``residual``
asks Python what only Python can say, for the rows on which a rule hangs. ``row_test`` asks
one condition, such as a WHERE over files.

A new kind of test that arrays can decide is a kernel beside these, or of texts in
``compile.patterns``, which ``matcher.Batch`` calls.
One that asks Python is a case of ``residual``. Imports ``rules/compile``.
"""
