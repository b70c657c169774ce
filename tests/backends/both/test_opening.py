"""Opening a backend looks at the machine once."""

from types import SimpleNamespace

import pytest

from accelerator_graph.backends.base import Availability
from accelerator_graph.backends.cuda import CudaBackend
from accelerator_graph.backends.hip import HipBackend
from accelerator_graph.errors import BackendUnavailableError


@pytest.mark.parametrize("kind", [CudaBackend, HipBackend])
def test_open_does_not_repeat_a_probe_that_found_the_backend_usable(monkeypatch, kind):
    answers = [Availability(True), Availability(False, "the device is gone"), Availability(True)]
    probed = iter(answers)
    monkeypatch.setattr(kind, "look", staticmethod(lambda: next(probed)))
    monkeypatch.setattr(kind, "driver_type", staticmethod(lambda name: SimpleNamespace(device_count=1)))
    monkeypatch.setattr(kind, "_usable", None)
    backend = kind()
    backend.name = "it"
    kind.probe()
    backend.open()  # without another probe
    assert not kind.probe().usable
    backend.open()  # with the third
    assert next(probed, None) is None
    monkeypatch.setattr(kind, "look", staticmethod(lambda: answers[1]))
    monkeypatch.setattr(kind, "_usable", None)
    with pytest.raises(BackendUnavailableError, match="the device is gone"):
        backend.open()
