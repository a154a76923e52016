"""Exceptions and warnings of the whole package.

Every exception raised on purpose derives from `GraphMaternError` and, as well, from the built-in
exception a caller would expect (`ValueError`, `KeyError`, ...), so that both kinds of ``except`` work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "DataNotFoundError",
    "EdgeWarning",
    "Fault",
    "GraphError",
    "GraphMaternError",
    "GraphMaternWarning",
    "InputError",
    "KernelError",
    "LikelihoodError",
    "MissingLibraryError",
    "ModelFileError",
    "NotPositiveDefiniteError",
    "NumericalError",
    "NumericalWarning",
    "ResourceError",
    "TableError",
    "UninformedWarning",
    "UnknownNodeError",
]


class GraphMaternError(Exception):
    """Base class of every exception raised on purpose by graphmatern."""


@dataclass(frozen=True)
class Fault:
    """One thing wrong with an input.

    Attributes
    ----------
    argument : str
        Name of the argument at fault.
    rule : str
        What the argument must satisfy, continuing a sentence that begins with its name.
    received : str
        The offending value, shortened if it is long.
    remedy : str
        What the caller can do about it.
    """

    argument: str
    rule: str
    received: str
    remedy: str

    def __str__(self) -> str:
        return f"`{self.argument}` {self.rule}; received {self.received}. {self.remedy}"


class InputError(GraphMaternError, ValueError):
    """An input breaks one or more rules; all of them are listed.

    Parameters
    ----------
    subject : str
        What was being made or done, for the first line of the message.
    faults : sequence of Fault
        Everything that is wrong.

    Examples
    --------
    >>> import graphmatern as gm
    >>> try:
    ...     gm.Graph.from_edges([("a", "b")], weight=[-1.0])
    ... except gm.errors.InputError as error:
    ...     print(error.faults[0].argument)
    weight
    """

    def __init__(self, subject: str, faults: Sequence[Fault]) -> None:
        self.subject = subject
        self.faults = tuple(faults)
        super().__init__(subject, self.faults)

    def __str__(self) -> str:
        if len(self.faults) == 1:
            return f"{self.subject}: {self.faults[0]}"
        lines = "\n".join(f"  {number}. {fault}" for number, fault in enumerate(self.faults, start=1))
        return f"{self.subject}: {len(self.faults)} faults\n{lines}"


class GraphError(InputError):
    """The description of a graph is wrong."""


class TableError(InputError):
    """A table of values or points is wrong."""


class KernelError(InputError):
    """A kernel's parameters, or its use on a graph, are wrong."""


class LikelihoodError(InputError):
    """A likelihood's parameters, or the observations it is given, are wrong."""


class UnknownNodeError(InputError, KeyError):
    """Names that are not nodes of the graph."""

    # KeyError would show the repr of the message.
    __str__ = InputError.__str__


class DataNotFoundError(GraphMaternError, FileNotFoundError):
    """A data set or one of its files was not found."""


class MissingLibraryError(GraphMaternError, ImportError):
    """An optional library is missing; the message says how to install it."""


class ModelFileError(GraphMaternError, ValueError):
    """A model file is damaged, is not a model file, or has contents that this version cannot read."""


class ResourceError(GraphMaternError, MemoryError):
    """A computation would need more memory or time than is allowed; it was not started."""


class NumericalError(GraphMaternError, ArithmeticError):
    """A computation broke down numerically; the message lists the likely causes."""


class NotPositiveDefiniteError(NumericalError):
    """A matrix that must be positive definite is not.

    Parameters
    ----------
    message : str
        What was being factorised, and the likely causes.
    column : int
        Row and column of the matrix, in the caller's ordering, at which the breakdown was noticed.
    """

    def __init__(self, message: str, column: int) -> None:
        self.column = column
        super().__init__(message, column)

    def __str__(self) -> str:
        return str(self.args[0])


class GraphMaternWarning(UserWarning):
    """Base class of every warning issued by graphmatern."""


class EdgeWarning(GraphMaternWarning):
    """Edges were dropped or merged while a graph was made."""


class NumericalWarning(GraphMaternWarning):
    """A result is less accurate than usual; the message says by how much and why."""


class UninformedWarning(GraphMaternWarning):
    """Predictions were requested in a component without data: they are those of the prior."""
