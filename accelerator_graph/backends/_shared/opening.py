"""Opening a backend that stands on a vendor's library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ...errors import BackendUnavailableError
from ..base import Availability


class _HasDevices(Protocol):
    device_count: int


Driver = TypeVar("Driver", bound=_HasDevices)


def open_driver(
    name: str, probe: Callable[[], Availability], make: Callable[[str], Driver], library: str, variable: str
) -> Driver:
    """Return an initialised driver.

    Parameters
    ----------
    name : str
        The name of the backend.
    probe : callable
        Finds out whether the driver could be initialised at all.
    make : callable
        Initialises the driver.
    library : str
        What the vendor calls it: the driver or the runtime.
    variable : str
        The variable of the environment that hides devices.

    Raises
    ------
    BackendUnavailableError
        It can't be initialised, or finds no device.
    """
    reason, cause = probe().reason, None
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
