"""Arguments: public functions check numbers, strings and flags against their annotations.

`@validated` reads the annotations of a function: `int`, `float`, `bool`, `str`, `None`, `Literal`,
a callable, a `Range` of numbers, and unions of them. Everything else is left to the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from math import inf
from numbers import Real
from reprlib import repr as short
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, cast, get_args, get_origin

import numpy as np

from .errors import InputError, closest, not_allowed
from .readings import library_of

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Range:
    """The numbers from `least` on, without `least` if `open`, and less than `below`; for a limit,
    infinity too.
    """

    least: float
    open: bool = False
    limit: bool = False
    below: float | None = None

    def holds(self, value: float) -> bool:
        fits = value > self.least if self.open else value >= self.least
        return bool(fits and (self.below is None or value < self.below))

    def __str__(self) -> str:
        end = "" if self.below is None else f" and below {self.below:g}"
        return f", {'above' if self.open else 'at least'} {self.least:g}{end}"


Natural = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1)]
Count = Annotated[int, Range(0, limit=True)]
NonNegative = Annotated[float, Range(0)]
Above0 = Annotated[float, Range(0, open=True)]


def validated(function: F) -> F:
    """The function, which raises `InputError` for an argument that does not fit its annotation.

    Whole numbers may be floats, flags 0 or 1, and numbers arrays without axes. The arguments of a
    class are those that make an instance.

    >>> @validated
    ... def power(A: Any, k: Natural = 2, *, method: str | None = None): return k
    >>> power("A", 3.0, method="squaring")
    3
    >>> power("A", -1)
    Traceback (most recent call last):
    onnxjac.jacobians.errors.InputError: k=-1 must be a whole number, at least 0
    >>> power("A", method=7)
    Traceback (most recent call last):
    onnxjac.jacobians.errors.InputError: method=7 must be a string or None
    """
    if isinstance(function, type):
        cast(Any, function).__init__ = validated(cast(Any, function).__init__)
        return function

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        names, kinds = kinds_of(function)
        if len(args) > len(names):
            check_positions(call, names)
        given = (check_kind(name, x, kinds[name]) if name in kinds else x
                 for name, x in zip(names, args, strict=False))  # fmt: skip
        return function(*given, *args[len(names) :], **fit(options, kinds))

    return cast(F, call)


def check_positions(function: Callable[..., Any], names: tuple[str, ...]) -> None:
    """Raises `InputError` for a function that takes these parameters by position, others by name.

    >>> check_positions(lambda a, *, b=1: a, ("a",))
    Traceback (most recent call last):
    onnxjac.jacobians.errors.InputError: <lambda> takes a by position, all else by name: b=
    """
    kinds = {p.name: p.kind for p in signature(function).parameters.values()}
    others = [f"{name}=" for name, kind in kinds.items() if kind == Parameter.KEYWORD_ONLY]
    if others and Parameter.VAR_POSITIONAL not in kinds.values():
        taken = ", ".join(name for name in names if name != "self") or "nothing"
        raise InputError(f"{function.__name__} takes {taken} by position, all else by name: "
                         f"{', '.join(others)}")  # fmt: skip


def fit(options: dict[str, Any], kinds: Mapping[str, list[ArgumentKind]]) -> dict[str, Any]:
    """The options, each of the kinds of its name; raises `InputError`."""
    return {name: check_kind(name, x, kinds[name]) if name in kinds else x
            for name, x in options.items()}  # fmt: skip


def check_kind(name: str, value: Any, kinds: list[ArgumentKind]) -> Any:
    """The value, as an int where whole numbers are due; raises `InputError`. A number that a traced
    function takes is not known yet.
    """
    is_scalar = getattr(value, "ndim", None) == 0
    is_traced = is_scalar and not library_of(value).knows(value)
    if is_traced and any(kind.base is float for kind in kinds):
        return value
    plain = value.item() if is_scalar else value
    for kind in kinds:
        if kind.holds(plain):
            return int(plain) if kind.base is int and plain != inf else value
    if choices := [choice for kind in kinds for choice in kind.choices]:
        raise not_allowed(name, value, choices + [None] * (ArgumentKind(NoneType) in kinds))
    raise InputError(f"{name}={short(value)} must be {' or '.join(map(str, kinds))}")


@cache
def kinds_of(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, list[ArgumentKind]]]:
    """The names of the positional parameters, and the kinds of parameters that can be validated."""
    parameters, found = evaluated(function).parameters.values(), {}
    for p in parameters:
        kinds = kinds_in(p.annotation)
        if kinds not in UNCHECKED and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            found[p.name] = kinds
    return tuple(p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD), found


def evaluated(function: Callable[..., Any]) -> Signature:
    """The signature with types as annotations; a name that only a type checker imports is Any."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            return signature(function, locals=unknown, eval_str=True)
        except NameError as error:
            unknown[str(error.name)] = Any


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number, and not NaN."""
    return isinstance(value, Real) and bool(value == value)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number."""
    return is_number(value) and value not in (inf, -inf) and value == int(value)


def is_flag(value: object) -> bool:
    """Whether a value is True or False, or 1 or 0."""
    return isinstance(value, np.bool_) or (is_number(value) and value in (0, 1))


CHECKS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("True or False", is_flag),
    int: ("a whole number", is_whole),
    float: ("a number", is_number),
    str: ("a string", lambda value: isinstance(value, str)),
    NoneType: ("None", lambda value: value is None),
    Callable: ("a function", callable),
    Mapping: ("a dict", lambda value: isinstance(value, Mapping)),
}
"""What an argument may be: in words, and as a test."""


@dataclass(frozen=True)
class ArgumentKind:
    """A type of arguments, with a range of numbers or a choice of strings."""

    base: Any
    range: Range | None = None
    choices: tuple[str, ...] = ()

    def holds(self, value: object) -> bool:
        """Whether a value is of this kind."""
        fits = CHECKS[self.base][1](value) and (not self.choices or value in self.choices)
        if self.range is None:
            return fits
        endless = self.range.limit and is_number(value) and value == inf
        return (fits or endless) and self.range.holds(cast(float, value))

    def __str__(self) -> str:
        return CHECKS[self.base][0] + ("" if self.range is None else str(self.range))


UNCHECKED: list[list[ArgumentKind]] = [[], [ArgumentKind(Callable)], [ArgumentKind(Mapping)]]
"""What is left to a function, which can say what a function or a dict of its must be like."""


def kinds_in(annotation: Any) -> list[ArgumentKind]:
    """The kinds in an annotation; empty if one of them cannot be validated."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        found = [kinds_in(part) for part in parts]
        return [kind for kinds in found for kind in kinds] if all(found) else []
    if origin is Annotated:
        return [ArgumentKind(*parts)] if isinstance(parts[1], Range) else []
    if origin is Literal:
        return [ArgumentKind(str, choices=parts)] if all(isinstance(x, str) for x in parts) else []
    base = NoneType if annotation is None else origin or annotation
    return [ArgumentKind(base)] if base in CHECKS else []


# -- signatures: `help` and completion name the options that a function passes on to another one ---


def passes_options_to(*receivers: Callable[..., Any], but: str = "") -> Callable[[F], F]:
    """Show, and allow, the parameters of the receivers that have defaults in place of `**options`.

    The parameter that `but` names is none of them. The options are validated at the call.

    >>> @passes_options_to(lambda x, *, engine=None: x)
    ... def twice(x, **options): ...
    >>> print(signature(twice))
    (x, *, engine=None)
    >>> twice(3, engin="numpy")
    Traceback (most recent call last):
    TypeError: twice() got an unexpected keyword argument 'engin'. Did you mean 'engine'?
    """

    def decorate(function: F) -> F:
        found = join_signatures(signature(function), *map(signature, receivers), but=but)
        known = [name for name, p in found.parameters.items() if p.kind is Parameter.KEYWORD_ONLY]

        @wraps(function)
        def checked(*args: Any, **options: Any) -> Any:
            for name in options.keys() - found.parameters.keys():
                unknown = f"{function.__name__}() got an unexpected keyword argument {name!r}."
                raise TypeError(unknown + closest(name, known))
            for receiver in receivers:
                options = fit(options, kinds_of(receiver)[1])
            return function(*args, **options)

        return cast(F, shown_as(checked, found))

    return decorate


def join_signatures(own: Signature, *others: Signature, but: str = "") -> Signature:
    """The parameters of `own` without `**options`; of `others`, the options except `but`."""
    kept = {k: p for k, p in own.parameters.items() if p.kind is not Parameter.VAR_KEYWORD}
    for p in (p for other in others for p in other.parameters.values()):
        if p.default is not Parameter.empty and p.name != but:
            kept.setdefault(p.name, p.replace(kind=Parameter.KEYWORD_ONLY))
    return own.replace(parameters=list(kept.values()))


def shown_as(function: F, found: Signature) -> F:
    """The function, with this signature in `help`."""
    cast(Any, function).__signature__ = found
    return function
