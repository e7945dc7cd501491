"""Many rules over one stream, evaluated together: shared predicates instead of rule by rule.

``compile/`` makes a program of rules, ``match/`` evaluates rows by it, ``planning/`` chooses how,
``loop`` plans again where that pays; ``store`` keeps named rules while they change. After attribute
selection constructs (Lee and Lee, J. Intell. Inf. Syst. 39(2), 2012), generalised to any boolean
rule and to predicates on texts. Imports what stands above ``rules/`` and no other operator.
"""
