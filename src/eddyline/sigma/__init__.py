"""Sigma rules in: read by pySigma, run as a set of rules (extra ``sigma``)."""

from eddyline.sigma.loading import load, read
from eddyline.sigma.rule import SigmaRule, SigmaRules

__all__ = ["SigmaRule", "SigmaRules", "load", "read"]
