"""Whether a class that a plug-in offers fulfils the contract."""

from __future__ import annotations

from collections.abc import Sequence


def problem_of(found: object, base: type, api_versions: Sequence[int], provider: str) -> str:
    """Return the end of a sentence that begins with the class, or an empty string if all is well.

    Parameters
    ----------
    found : object
        The object that is offered.
    base : type
        The class that it must derive from.
    api_versions : sequence of int
        The values of `api_version` that this library supports, in ascending order.
    provider : str
        The distribution to upgrade if its version is too old.
    """
    path = f"{base.__module__}.{base.__qualname__}"
    if not isinstance(found, type):
        kind = type(found).__name__
        return f"is an object of type {kind}, not a class; its entry point must name a subclass of {path}"
    if base not in found.__mro__:
        return f"is not a subclass of {path}; derive it from that class"
    newest, version = api_versions[-1], getattr(found, "api_version", None)
    if type(version) is not int:
        return f"has no valid api_version; write `api_version = {newest}` in the class"
    if version not in api_versions:
        supported = " and ".join(map(str, api_versions))
        return (
            f"has api_version {version}, but this accelerator_graph supports api_version {supported}; "
            f"upgrade {'accelerator-graph' if version > newest else provider}"
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    return f"lacks the methods {', '.join(missing)}; implement them" if missing else ""
