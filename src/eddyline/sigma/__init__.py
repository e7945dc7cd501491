"""Sigma rules in: read by pySigma, run as a set of rules (extra ``sigma``)."""
