"""Compilation of rules into a program.

A program has formulas, keys, regions of values, automata and bitmap blocks.

In: the rules of a set, bound to columns. Out: a ``Program``, and the bitmap blocks
that a plan needs of it.

Invariant: a program is arrays and values only, it does not depend on the plan, and no row is looked
at. A literal means the same in every rule that has it.

Read ``formula`` (a rule as AND and OR over literals) and ``program`` (numbers all tests, and says
what decides each). Then what decides them: ``regions`` (constants cut values into regions) and
``patterns`` (automata for texts). Last ``bitmap_block`` (rules that are looked at together).

A new kind of test is a case of ``program.compile_rules``; where rows look it up in arrays, also a
construct beside ``regions`` and ``patterns``. Imports ``rules/`` and what stands above it.
"""
