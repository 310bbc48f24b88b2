"""Signatures: `help` and completion name the options that a function passes on to another one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, cast

from ...jacobians.arguments import fit, kinds_of
from ...jacobians.errors import closest

F = TypeVar("F", bound=Callable[..., Any])


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
        found = joined(signature(function), *map(signature, receivers), but=but)
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


def joined(own: Signature, *others: Signature, but: str = "") -> Signature:
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
