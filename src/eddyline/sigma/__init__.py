"""Sigma rules in: read by pySigma, run as a set of rules (extra ``sigma``).

Files come in, and rule trees over the columns of events go out. Read ``loading`` first (the public
verbs), then ``files`` (where rules come from), ``reading`` with ``places`` and ``translation``
(from YAML to values of our own), ``rule`` with ``fields`` (from these to rule trees), and
``command``. Imports what stands above it; nothing but the command line imports it.
"""

from eddyline.sigma.loading import load, read
from eddyline.sigma.rule import SigmaRule, SigmaRules

__all__ = ["SigmaRule", "SigmaRules", "load", "read"]
