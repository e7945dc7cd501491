"""Many rules over one stream, evaluated together: shared predicates instead of one rule at a time.

After attribute selection constructs (Lee and Lee, J. Intell. Inf. Syst. 39(2), 2012), generalised
to any boolean rule and to predicates on texts.
"""
