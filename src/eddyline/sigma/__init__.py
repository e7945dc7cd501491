"""Sigma rules in: read by pySigma, run as a set of rules (extra ``sigma``).

Imports what stands above it; nothing but the command line imports it.
"""

from eddyline.sigma.loading import load, read
from eddyline.sigma.rule import SigmaRule, SigmaRules

__all__ = ["SigmaRule", "SigmaRules", "load", "read"]
