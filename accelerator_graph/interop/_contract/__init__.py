"""Records of what frameworks tell, imported on first use: most captures need none of them."""

from __future__ import annotations

from ..._interpreter.lazy import imported_on_use

TYPE_CHECKING: bool = False  # as in the package itself
if TYPE_CHECKING:
    from .collective import Collective as Collective
    from .pools import PoolContents as PoolContents
    from .pools import PoolSegment as PoolSegment
    from .report import FrameworkReport as FrameworkReport

HOMES = {
    f"{__name__}.collective": "Collective",
    f"{__name__}.pools": "PoolContents PoolSegment",
    f"{__name__}.report": "FrameworkReport",
}

if not TYPE_CHECKING:
    __getattr__ = imported_on_use(__name__, HOMES)
