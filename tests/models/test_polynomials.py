from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models.solving import polynomials

ROOTS = st.lists(st.integers(-20, 60).map(lambda n: n / 10), min_size=1, max_size=5)
COEFS = st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=1, max_size=9)


def row(*values):
    return np.array([values], dtype=float)


def roots_of(coefs, length):
    found = polynomials.breaks(np.atleast_2d(np.asarray(coefs, dtype=float)), np.array([length]))[0]
    assert len(found) == np.shape(coefs)[-1] - 1
    return found[found < length]


def test_t2_alignment():
    one = polynomials.shifted(row(10, 2), np.array([-0.0]))
    other = polynomials.shifted(row(0, 1, 0.5), np.array([-3.0]))
    apart = polynomials.total(one, -other)
    np.testing.assert_allclose(apart, row(8.5, 4, -0.5), atol=1e-9)
    np.testing.assert_allclose(roots_of(apart[0], 20.0), [4 + 33**0.5], atol=1e-9)
    assert roots_of(polynomials.shifted(apart, np.array([3.0]))[0], 5.0).size == 0


def test_t10_shift():
    found = polynomials.shifted(row(3, 2, 1), np.array([4.0]))
    np.testing.assert_allclose(found, row(27, 10, 1), atol=1e-9)


def test_t25_and_t27_values():
    assert polynomials.evaluate(row(0, 1, 1, 1), np.array([2.0])).tolist() == [14]
    assert polynomials.evaluate(row(1, 2, 0.5), np.array([3.0])).tolist() == [11.5]


def test_values_at_several_instants_of_each():
    coefs = np.array([[1.0, 1.0], [0.0, 2.0], [5.0, 0.0]])
    at = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    assert polynomials.evaluate(coefs, at).tolist() == [[1, 2], [4, 6], [5, 5]]
    constant = polynomials.evaluate(coefs[:, :1], at)
    assert constant.tolist() == [[1, 1], [0, 0], [5, 5]]


@given(COEFS, st.integers(-30, 30).map(lambda n: n / 4))
def test_shift_is_a_substitution(coefs, by):
    at = np.array([0.75])
    moved = polynomials.evaluate(polynomials.shifted(row(*coefs), np.array([by])), at)
    there = polynomials.evaluate(row(*coefs), at + by)
    size = polynomials.evaluate(np.abs(row(*coefs)), np.abs(at) + abs(by))
    assert abs(moved - there) <= 1e-13 * size


@given(COEFS)
def test_derivative_is_that_of_numpy(coefs):
    expected = np.polynomial.polynomial.polyder(coefs) if len(coefs) > 1 else [0.0]
    np.testing.assert_allclose(polynomials.derivative(row(*coefs)), row(*expected), rtol=1e-15)


@given(COEFS, COEFS)
def test_product_is_the_product_of_values(one, other):
    at = np.array([1.25])
    left, right = row(*one), row(*other)
    found = polynomials.evaluate(polynomials.product(left, right), at)
    expected = polynomials.evaluate(left, at) * polynomials.evaluate(right, at)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)


def test_one_product_with_many():
    many = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert polynomials.product(row(2), many).tolist() == [[2, 4], [6, 8]]
    assert polynomials.product(many, row(0, 1)).tolist() == [[0, 1, 2], [0, 3, 4]]


@given(ROOTS, st.sampled_from([1.0, -3.5, 1e-9, 1e12]))
def test_roots_are_found_once_each_whatever_their_multiplicity(roots, factor):
    found = roots_of(np.poly(roots)[::-1] * factor, 4.0)
    expected = np.array(sorted({each for each in roots if 0 < each < 4}))
    # Rounding of coefficients splits or joins a root of multiplicity m by its m-th root.
    multiplicity = max(roots.count(each) for each in roots)
    tolerance = 1e-9 if multiplicity == 1 else 2e-15 ** (1 / multiplicity) * 100
    assert all(np.abs(expected - each).min(initial=9) <= tolerance for each in found)
    crossings = [each for each in expected if roots.count(each) % 2]
    assert all(np.abs(found - each).min(initial=9) <= tolerance for each in crossings)
    if multiplicity == 1:
        np.testing.assert_allclose(found, expected, atol=tolerance)


@pytest.mark.parametrize("multiplicity", [2, 3, 4])
def test_touching_roots(multiplicity):
    np.testing.assert_allclose(roots_of(np.poly([1.0] * multiplicity)[::-1], 3.0), [1], atol=1e-3)
    irrational = np.convolve(np.poly([2**0.5] * 2), [1.0, 0.0, 1.0])[::-1]
    np.testing.assert_allclose(roots_of(irrational, 3.0), [2**0.5], atol=1e-7)


def test_degree_4_with_terms_that_nearly_cancel():
    roots = [1.0, 1.001, 1.002, 1.003]
    found = roots_of(np.poly(roots)[::-1], 2.0)
    np.testing.assert_allclose(found, roots, atol=2e-6)


@pytest.mark.parametrize("degree", range(1, 9))
def test_leading_coefficients_of_0_or_next_to_it(degree):
    for leading in (0.0, 1e-18, -1e-18):
        coefs = [-2.0, 1.0, *[0.0] * (degree - 1)]
        coefs[-1] = coefs[-1] + leading if degree > 1 else 1.0
        np.testing.assert_allclose(roots_of(coefs, 5.0), [2], atol=1e-9)


def test_no_root_in_constants_and_zeros_and_at_ends():
    assert roots_of([3.0], 5.0).size == 0
    assert roots_of([0.0, 0.0, 0.0, 0.0], 5.0).size == 0
    assert roots_of([2.0, 0.0, 0.0, 0.0, 0.0], 5.0).size == 0
    assert roots_of(np.poly([0.0, 5.0, 2.0])[::-1], 5.0).tolist() == [2]
    assert polynomials.breaks(np.zeros((0, 4)), np.zeros(0)).shape == (0, 3)


@pytest.mark.parametrize("degree", range(1, 9))
def test_roots_against_eigenvalues_of_companions(degree):
    rng = np.random.default_rng(degree)
    coefs = rng.normal(size=(2000, degree + 1))
    found = [line[line < 2] for line in polynomials.breaks(coefs, np.full(2000, 2.0))]
    wanted = []
    for each in coefs:
        roots = np.roots(each[::-1])
        real = np.sort(roots[np.abs(roots.imag) < 1e-9].real)
        wanted.append(real[(real > 0) & (real < 2)])
    assert [*map(len, found)] == [*map(len, wanted)]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(wanted), atol=1e-7)


@given(st.lists(COEFS, min_size=1, max_size=6))
def test_extremes_and_bounds_hold_all_values(rows):
    size = max(map(len, rows))
    coefs = np.array([[*each, *[0.0] * (size - len(each))] for each in rows])
    length = np.linspace(0.5, 2.0, len(rows))
    values = polynomials.evaluate(coefs, length[:, None] * np.linspace(0, 1, 501))
    low, high = polynomials.extremes(coefs, length)
    wide_low, wide_high = polynomials.bounds(coefs, length)
    slack = 1e-9 * (1 + np.abs(values).max(axis=1))
    assert (low - slack <= values.min(axis=1)).all()
    assert (values.max(axis=1) <= high + slack).all()
    assert (wide_low - slack <= low).all()
    assert (high <= wide_high + slack).all()
    step = np.abs(polynomials.derivative(coefs)).sum(axis=1) * 2.0**size * length / 500
    assert (values.max(axis=1) >= high - step - slack).all()
