"""Hypothesis profiles: choose one with HYPOTHESIS_PROFILE; every one is deterministic."""

from __future__ import annotations

import os

from hypothesis import settings

for name, n_examples in {"dev": 50, "ci": 300, "nightly": 5000}.items():
    settings.register_profile(name, max_examples=n_examples, deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
