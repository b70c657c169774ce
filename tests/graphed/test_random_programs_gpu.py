"""Random functions of torch tensors on a GPU: `graphed` with each `inputs=` equals eager runs."""

import random

import pytest

import lanes

pytestmark = lanes.require("gpu", "torch")
pytest.importorskip("torch")

from graphed.torch_programs import MODES, compare, random_program


@pytest.mark.promise("results-of-eager-runs")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4))
def test_random_functions_are_equal_to_eager(seed, mode):
    draw = random.Random(f"{seed} {mode}")
    for _ in range(12):
        compare(random_program(draw), mode, draw.choice(["copy", "static"]), draw)
