"""`graphed` over random functions of torch's tensors on a GPU, with all ways to pass arguments."""

from __future__ import annotations

import random

import pytest

import lanes

pytestmark = lanes.require("gpu", "torch")
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch has no GPU", allow_module_level=True)

from graphed.torch_programs import MODES, compare, random_program


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4))
def test_random_functions_are_equal_to_eager(seed, mode):
    draw = random.Random(f"{seed} {mode}")
    for _ in range(12):
        compare(random_program(draw), mode, draw.choice(["copy", "static"]), draw)
