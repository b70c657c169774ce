"""Opening a backend that stands on a vendor's library."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ...errors import BackendUnavailableError
from ..base import Availability

if TYPE_CHECKING:
    from typing import Protocol

    class _Driver(Protocol):
        device_count: int


Driver = TypeVar("Driver", bound="_Driver")


def open_driver(
    name: str, found: Availability, make: Callable[[str], Driver], library: str, variable: str
) -> Driver:
    """Return what `make` initialises for the backend `name`, or raise `BackendUnavailableError`.

    `found` is what the backend's probe answered, `library` the vendor's word for it, and `variable` the one
    of the environment that hides devices.
    """
    reason, cause = found.reason, None
    if not reason:
        try:
            driver = make(name)
            if driver.device_count:
                return driver
            reason = f"the {library} finds no device. Attach one, or correct {variable}"
        except Exception as error:
            reason, cause = f"the {library} can't be initialised: {str(error).rstrip('.')}", error
    raise BackendUnavailableError(
        f"backend {name!r} is not available: {reason}.", reasons={name: reason}
    ) from cause
