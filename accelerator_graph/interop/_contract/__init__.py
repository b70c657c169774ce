"""Records of what frameworks tell, imported on first use: most captures need none of them."""

from __future__ import annotations

from ..._interpreter import imported_on_use

TYPE_CHECKING: bool = False  # as in the package itself
if TYPE_CHECKING:
    from .records import Collective as Collective
    from .records import FrameworkReport as FrameworkReport
    from .records import PoolContents as PoolContents
    from .records import PoolSegment as PoolSegment

HOMES = {f"{__name__}.records": "Collective FrameworkReport PoolContents PoolSegment"}

if not TYPE_CHECKING:
    __getattr__ = imported_on_use(__name__, HOMES)
