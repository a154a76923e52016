"""scikit-learn's conventions without its base classes, whose import takes longer than a small fit.

What scikit-learn asks of an estimator it finds by name: parameters, tags and a type. Its own checks are among our
tests.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self

from graphmatern._validation import abbreviate

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["Estimator"]

_LONG_TEXT = 80  # characters of a parameter that are shown


class Estimator:
    """What `sklearn.base.BaseEstimator` is to scikit-learn's estimators: options of the constructor, by their names."""

    _estimator_type: ClassVar[Literal["classifier", "regressor"] | None] = None

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """Names of the constructor's arguments, sorted."""
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the options.

        Parameters
        ----------
        deep : bool
            Whether options of options, such as the parameters of a kernel, are among them as ``kernel__nu``.
        """
        found: dict[str, Any] = {}
        for name in self._get_param_names():
            value = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                found |= {f"{name}__{key}": own for key, own in value.get_params().items()}
            found[name] = value
        return found

    def set_params(self, **params: Any) -> Self:
        """Set options, also those of options as in ``kernel__nu=1.5``; they are for the next fit.

        Parameters
        ----------
        **params : object
            By name.
        """
        known = self.get_params()
        nested: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            name, divided, rest = key.partition("__")
            if name not in known:
                names = abbreviate(self._get_param_names())
                raise ValueError(f"{name!r} is no parameter of {type(self).__name__}; its parameters are {names}")
            if divided:
                nested.setdefault(name, {})[rest] = value
            else:
                setattr(self, name, value)
                known[name] = value
        for name, own in nested.items():
            known[name].set_params(**own)
        return self

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags

        kind = self._estimator_type
        return Tags(
            estimator_type=kind,
            target_tags=TargetTags(required=kind is not None),
            regressor_tags=RegressorTags() if kind == "regressor" else None,
            classifier_tags=ClassifierTags() if kind == "classifier" else None,
        )

    def _raise_not_fitted(self, why: str) -> NoReturn:
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"this {type(self).__name__} {why}")

    def __repr__(self) -> str:
        """Options that are not the default ones."""
        shown = []
        for name, one in inspect.signature(type(self).__init__).parameters.items():
            text = repr(getattr(self, name, one.default))
            if name != "self" and text != repr(one.default):
                words = " ".join(text.split())
                shown.append(f"{name}={words if len(words) <= _LONG_TEXT else words[: _LONG_TEXT - 3] + '...'}")
        return f"{type(self).__name__}({', '.join(shown)})"
