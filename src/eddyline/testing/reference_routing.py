"""Slow oracles of routing, tuple by tuple as the paper runs it [Bizarro05 3, 4].

Three ways to choose the next filter for a tuple: by overall pass fractions (source-based routing,
the paper's baseline), by pass fractions given the tuple's content as they are learned
(Content-Learns), or by orders that an oracle knows (Content-Knows).

Not fixed by the paper: what a trial lasts (here as many tuples as the profiling before it), gamma,
and the first pass fractions (one half). "Faster" is counted in evaluations, not in seconds. The
baseline takes the least pass fraction; the paper once says that it draws by the inverse.

Nothing here is fast and nothing outside of tests and benchmarks may use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.routing.gain import gains

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ALPHA = 0.95
"""Weight of what a running pass fraction was before [Bizarro05 footnote 4]."""


class TupleSourceBased:
    """Source-based routing: every tuple goes to the filter of least overall pass fraction.

    Args:
        n_filters: how many filters there are.
    """

    def __init__(self, n_filters: int) -> None:
        self.pass_fracs = [0.5] * n_filters
        self.n_evaluations = 0

    def run(self, drops: Iterable[Sequence[bool]], buckets: Iterable[Sequence[int]]) -> list[int]:
        """Return which tuples are emitted.

        Args:
            drops: for each tuple, which filter drops it.
            buckets: for each tuple, its bucket in each attribute.
        """
        pairs = enumerate(zip(drops, buckets, strict=True))
        return [place for place, (bits, found) in pairs if self.process(bits, found)]

    def process(self, drops: Sequence[bool], buckets: Sequence[int]) -> bool:
        """Run one tuple through the filters and return whether it is emitted."""
        return self._route(drops, buckets, list(range(len(drops))))

    def _route(self, drops: Sequence[bool], buckets: Sequence[int], left: list[int]) -> bool:
        while left:
            best = min(left, key=lambda f: self.pass_frac(f, buckets))
            left.remove(best)
            if not self._evaluate(best, drops, buckets):
                return False
        return True

    def _evaluate(self, f: int, drops: Sequence[bool], buckets: Sequence[int]) -> bool:
        passes = not drops[f]
        self.n_evaluations += 1
        self.update(f, passes, buckets)
        return passes

    def pass_frac(self, f: int, buckets: Sequence[int]) -> float:  # noqa: ARG002 for content
        """Return the pass fraction that filter f is ranked by."""
        return self.pass_fracs[f]

    def update(self, f: int, passes: bool, buckets: Sequence[int]) -> None:  # noqa: ARG002
        """Take in one evaluation [Bizarro05 footnote 4]."""
        self.pass_fracs[f] = running(self.pass_fracs[f], passes)


def running(frac: float, passes: bool) -> float:
    """Return a running pass fraction after one more evaluation.

    >>> round(running(0.4, True), 4), round(running(0.4, False), 4)
    (0.43, 0.38)
    """
    return ALPHA * frac + (1.0 - ALPHA) * passes


class TupleContentLearns(TupleSourceBased):
    """Content-based routing that learns one classifier attribute per filter.

    Args:
        n_filters: how many filters there are.
        sizes: how many buckets each attribute has.
        rng: draws the tuples to profile.
        gamma: least gain ratio of a classifier attribute; 0.02 lets some chance through.
        profile_prob: chance that a tuple is diverted to the profiled filter [Bizarro05 Table 2].
        n_sample: tuples per round of profiling [Bizarro05 Table 2].
        has_trials: whether a classifier has to save evaluations in a trial.
    """

    def __init__(
        self,
        n_filters: int,
        sizes: Sequence[int],
        rng: np.random.Generator,
        *,
        gamma: float = 0.02,
        profile_prob: float = 0.06,
        n_sample: int = 150,
        has_trials: bool = True,
    ) -> None:
        super().__init__(n_filters)
        self.classifier = [-1] * n_filters
        self.by_bucket: list[list[float]] = [[] for _ in range(n_filters)]
        self.sizes = list(sizes)
        self.profiled = 0
        self._rng = rng
        self._gamma = gamma
        self._prob = profile_prob
        self._n_sample = n_sample
        self._has_trials = has_trials
        self._trial_left = 0
        self._rate_without = 0.0
        self._start()

    def process(self, drops: Sequence[bool], buckets: Sequence[int]) -> bool:
        """Run one tuple through the filters and return whether it is emitted [Bizarro05 4.1]."""
        before, n = self.n_evaluations, len(drops)
        is_trial = self._trial_left > 0
        if self.sizes and not is_trial and self._rng.random() < self._prob:
            emitted = self._profile(drops, buckets)
        else:
            emitted = self._route(drops, buckets, list(range(n)))
        self._n_tuples += 1
        self._n_spent += self.n_evaluations - before
        if is_trial:
            self._trial_left -= 1
            if self._trial_left == 0:
                self._judge()
        elif self._collected == self._n_sample:
            self._decide()
        return emitted

    def _profile(self, drops: Sequence[bool], buckets: Sequence[int]) -> bool:
        """Send a tuple to the profiled filter first, and count it."""
        passes = self._evaluate(self.profiled, drops, buckets)
        self._collected += 1
        for j, bucket in enumerate(buckets):
            self.seen[j][bucket] += 1
            self.passed[j][bucket] += passes
        rest = [f for f in range(len(drops)) if f != self.profiled]
        return passes and self._route(drops, buckets, rest)

    def _start(self) -> None:
        """Begin to profile a filter: it is routed without content meanwhile."""
        self.classifier[self.profiled] = -1
        self.seen = [[0] * size for size in self.sizes]
        self.passed = [[0] * size for size in self.sizes]
        self._collected = self._n_tuples = self._n_spent = 0

    def _decide(self) -> None:
        """Choose the classifier attribute of the profiled filter, if it has one."""
        found = gains(
            [np.array(each, dtype=np.float64) for each in self.seen],
            [np.array([each], dtype=np.float64) for each in self.passed],
        )
        best = int(found.ratio[0].argmax())
        if found.ratio[0, best] <= self._gamma:
            self._next()
            return
        f = self.profiled
        self.classifier[f] = best
        self.by_bucket[f] = initial(self.seen[best], self.passed[best], self.pass_fracs[f])
        if not self._has_trials:
            self._next()
            return
        self._rate_without = self._n_spent / self._n_tuples
        self._trial_left = self._n_tuples
        self._n_tuples = self._n_spent = 0

    def _judge(self) -> None:
        """Keep the classifier only if tuples cost less with it."""
        if self._n_spent / self._n_tuples >= self._rate_without:
            self.classifier[self.profiled] = -1
        self._next()

    def _next(self) -> None:
        self.profiled = (self.profiled + 1) % len(self.pass_fracs)
        self._start()

    def pass_frac(self, f: int, buckets: Sequence[int]) -> float:
        """Return the pass fraction of filter f given the tuple's bucket [Bizarro05 4.2]."""
        j = self.classifier[f]
        return self.pass_fracs[f] if j < 0 else self.by_bucket[f][buckets[j]]

    def update(self, f: int, passes: bool, buckets: Sequence[int]) -> None:
        """Take in one evaluation: the overall pass fraction and one of those by bucket."""
        super().update(f, passes, buckets)
        j = self.classifier[f]
        if j >= 0:
            fracs = self.by_bucket[f]
            fracs[buckets[j]] = running(fracs[buckets[j]], passes)


def initial(seen: Sequence[int], passed: Sequence[int], overall: float) -> list[float]:
    """Return the first pass fractions by bucket: the overall one where no tuple was seen.

    >>> initial([10, 0, 5], [1, 0, 5], 0.3)
    [0.1, 0.3, 1.0]
    """
    return [o / i if i else overall for i, o in zip(seen, passed, strict=True)]


def content_knows(
    drops: Iterable[Sequence[bool]], classes: Iterable[int], orders: Sequence[Sequence[int]]
) -> int:
    """Return the evaluations of an oracle that knows the best order of each class.

    Args:
        drops: for each tuple, which filter drops it.
        classes: the class of each tuple.
        orders: the order of each class.
    """
    total = 0
    for bits, number in zip(drops, classes, strict=True):
        for f in orders[number]:
            total += 1
            if bits[f]:
                break
    return total
