"""Numbers that are known only at run time, as polynomials over unknowns.

Sizes of dynamic tensors and loop counters are such numbers. Equal polynomials represent equal numbers, even if the
runtime's 64-bit arithmetic overflows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

Monomial: TypeAlias = tuple[int, ...]
"""Sorted symbols of the unknowns in a product. The empty tuple represents 1."""
Polynomial: TypeAlias = tuple[tuple[Monomial, int], ...]
"""Sorted sum of monomials, each with a factor that is not zero."""
Number: TypeAlias = int | Polynomial
Dims: TypeAlias = tuple[Number, ...]
"""Number of elements in each dimension of a tensor."""


_MOST_TERMS = 2000


class TooManyTermsError(Exception):
    """Error for a polynomial that has too many terms."""


def unknown(symbol: int) -> Number:
    """Return the unknown number that a symbol represents."""
    return (((symbol,), 1),)


def add(one: Number, other: Number) -> Number:
    """Return the sum of two numbers."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    terms = dict(_terms(one))
    for monomial, factor in _terms(other):
        terms[monomial] = terms.get(monomial, 0) + factor
    return _normal(terms)


def subtract(one: Number, other: Number) -> Number:
    """Return ``one - other``."""
    return add(one, multiply(other, -1))


def multiply(one: Number, other: Number) -> Number:
    """Return the product of two numbers. Raise :class:`TooManyTermsError` if the product has too many terms."""
    if isinstance(one, int) and isinstance(other, int):
        return one * other
    if len(_terms(one)) * len(_terms(other)) > _MOST_TERMS:
        raise TooManyTermsError
    terms: dict[Monomial, int] = {}
    for monomial, factor in _terms(one):
        for with_monomial, with_factor in _terms(other):
            product = tuple(sorted(monomial + with_monomial))
            terms[product] = terms.get(product, 0) + factor * with_factor
    return _normal(terms)


def product(numbers: Iterable[Number]) -> Number:
    """Return the product of all numbers, or 1 if there are none."""
    result: Number = 1
    for number in numbers:
        result = multiply(result, number)
    return result


def divide(one: Number, other: Number) -> Number | None:
    """Return the quotient, or None if the quotient is not a polynomial. The divisor must be a single monomial."""
    if len(_terms(other)) > 1:
        return None
    divisor, by = _terms(other)[0] if other else ((), 0)
    terms: dict[Monomial, int] = {}
    for monomial, factor in _terms(one):
        left = _without(monomial, divisor)
        if left is None or not by or factor % by:
            return None
        terms[left] = factor // by
    return _normal(terms)


def unknowns(number: Number) -> Iterable[int]:
    """Return the symbols of the unknowns in a number."""
    return () if isinstance(number, int) else [symbol for monomial, _ in number for symbol in monomial]


def factors(number: Number) -> Iterable[int]:
    """Map each monomial of a number to its factor."""
    return (number,) if isinstance(number, int) else [factor for _, factor in number]


def _without(monomial: Monomial, divisor: Sequence[int]) -> Monomial | None:
    left = list(monomial)
    for symbol in divisor:
        if symbol not in left:
            return None
        left.remove(symbol)
    return tuple(left)


def _terms(number: Number) -> Polynomial:
    return ((((), number),) if number else ()) if isinstance(number, int) else number


def _normal(terms: Mapping[Monomial, int]) -> Number:
    left = {monomial: factor for monomial, factor in terms.items() if factor}
    if not left:
        return 0
    if len(left) == 1 and () in left:
        return left[()]
    return tuple(sorted(left.items()))
