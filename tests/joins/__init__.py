"""Tests of joins; what several of them need is in ``plans``."""
