"""Whose driver is made to fail: that of the backend which ``FAULTS_BACKEND`` names."""

import os

BACKEND = os.environ.get("FAULTS_BACKEND", "cuda")

if BACKEND == "cuda":
    from . import cuda as vendor
    from . import cuda_codes as codes
else:
    from . import hip as vendor
    from . import hip_codes as codes

__all__ = ["BACKEND", "codes", "vendor"]
