"""Many rules over one stream, evaluated together: shared predicates instead of rule by rule.

Rules come in as conditions (``query/rules``) and go out as the rules that are true for each row.
The invariant: a plan says which rows meet which rules, never which rules are true. After attribute
selection constructs (Lee and Lee, J. Intell. Inf. Syst. 39(2), 2012), generalised to any boolean
rule and to predicates on texts. Imports what stands above ``rules/`` and no other operator.

Read them in this order: ``store`` (named rules while they change), ``compile/program`` (what rules
look at) with ``formula``, ``regions``, ``patterns`` and ``bitmap_block``; ``plan`` (how rows are
looked at), ``match/matcher`` (evaluates rows by program and plan), ``profile`` (what it counts),
``planning/planner`` (makes plans from that), ``choice`` (plans again where that pays); then
``view`` and ``description`` (what people see). A new kind of test begins in ``compile/program``; a
new way to find rules in ``plan``.
"""
