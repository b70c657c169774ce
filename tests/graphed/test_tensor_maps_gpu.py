"""Tensor maps: their first word is an address, and changing it is what the driver does to replace it."""

import ctypes
import itertools

import pytest

import accelerator_graph as ag
import lanes

pytestmark = lanes.require("gpu", "torch")
torch = pytest.importorskip("torch")

from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import call

SIZE, WORD = 128, 8
SOME = 16
"""How many formats of each type a GPU takes at least."""
TYPES = {"UINT8": 1, "FLOAT16": 2, "BFLOAT16": 2, "FLOAT32": 4, "INT64": 8, "FLOAT64": 8}


@pytest.fixture(autouse=True)
def hopper():
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("this GPU has no tensor maps")
    torch.zeros(1, device="cuda")


def encoded(address, element, swizzle, promotion, fill, rank):
    """Return a tensor map; None if the GPU takes none in this format."""
    size = TYPES[element]
    code, found = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{element}"),
        rank,
        address,
        [driver.cuuint64_t(64)] + [driver.cuuint64_t(16)] * (rank - 1),
        [driver.cuuint64_t(64 * size * 16**i) for i in range(rank - 1)],
        [driver.cuuint32_t(16 // size)] + [driver.cuuint32_t(8)] * (rank - 1),
        [driver.cuuint32_t(1)] * rank,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle,
        promotion,
        fill,
    )
    return found if code == driver.CUresult.CUDA_SUCCESS else None


def bits(tensor_map):
    return ctypes.string_at(tensor_map.getPtr(), SIZE)


@pytest.mark.parametrize("element", TYPES)
def test_the_driver_replaces_the_first_word(element):
    memory = [torch.zeros(1 << 20, dtype=torch.uint8, device="cuda") for _ in range(2)]
    here, *others = (x.data_ptr() + at for x in memory for at in (0, 16, 512, 4096))
    kinds = driver.CUtensorMapSwizzle, driver.CUtensorMapL2promotion, driver.CUtensorMapFloatOOBfill
    formats = [
        each for each in itertools.product(*kinds, (1, 2, 3, 5)) if encoded(here, element, *each) is not None
    ]
    assert len(formats) > SOME
    for each in formats:
        first = bits(encoded(here, element, *each))
        assert int.from_bytes(first[:WORD], "little") == here
        for address in others:
            patched = address.to_bytes(WORD, "little") + first[WORD:]
            replaced = encoded(here, element, *each)
            call(driver.cuTensorMapReplaceAddress, replaced, address)
            assert patched == bits(replaced) == bits(encoded(address, element, *each))


def test_a_product_with_tensor_maps_needs_no_copies():
    weight = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    f = ag.graphed(lambda x: x @ weight, warmup=1, inputs="bind", outputs="static")
    with torch.no_grad():
        for _ in range(20):
            x = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
            assert torch.equal(f(x), x @ weight)
    assert [(each.inputs, each.why) for each in f.explain()] == [("bind", "")]
