"""Groups of options that several commands share, each written down once."""

from __future__ import annotations

import functools
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["spread"]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses of options: on the command line, each of their fields is an option."""
    parameters: list[Parameter] = []
    groups: dict[str, Any] = {}
    for own in signature(command, eval_str=True).parameters.values():
        if not is_dataclass(own.annotation):
            parameters.append(own.replace(kind=Parameter.KEYWORD_ONLY))
            continue
        groups[own.name] = own.annotation
        hints = get_type_hints(own.annotation, include_extras=True)
        for one in fields(own.annotation):
            option = Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
            parameters.append(option)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{one.name: given.pop(one.name) for one in fields(group)})
        command(**given)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run
