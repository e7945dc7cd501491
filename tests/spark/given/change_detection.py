"""Numbers to watch."""

import numpy as np

rng = np.random.default_rng(1)
drop_fractions = np.concatenate([rng.beta(2, 8, 300), rng.beta(8, 2, 300)])
items = rng.random(2080)
first_items = drop_fractions[:40]
