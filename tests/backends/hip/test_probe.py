"""Whether HIP could run here: why not, found out without initialising it."""

import io
import os
import re
from types import SimpleNamespace

import pytest

from accelerator_graph import errors
from accelerator_graph.backends._hip import library as _hip_library
from accelerator_graph.backends._hip import probe
from accelerator_graph.backends.hip import HipBackend
from backends.tools import check_unusable, python

pytest_plugins = ["backends.hip.fixtures"]

KFD = "/sys/class/kfd/kfd/topology/nodes"


# ---- a machine of a few lines --------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch):
    """A machine with hip-python 7.2, a runtime, a processor and two devices, to be spoilt."""
    state = SimpleNamespace(
        hip=SimpleNamespace(__name__="hip.hip", HIP_VERSION_MAJOR=7, HIP_VERSION_MINOR=2),
        version="7.2.1",
        library=SimpleNamespace(path="libamdhip64.so", function=lambda name: None),
        maps=["/opt/rocm/lib/libamdhip64.so.7.2.70201"],
        nodes={"0": "0", "1": "5421", "2": "5422"},
        device_file=True,
        access=True,
    )

    def import_hip():
        if isinstance(state.hip, Exception):
            raise state.hip
        return state.hip

    def version(name):
        assert name == "hip-python"
        if state.version is None:
            raise probe.importlib.metadata.PackageNotFoundError(name)
        return state.version

    def library():
        if isinstance(state.library, Exception):
            raise state.library
        return state.library

    def listdir(folder):
        assert folder == KFD
        if state.nodes is None:
            raise FileNotFoundError(folder)
        return list(state.nodes)

    def opened(path, encoding):
        text = state.nodes[path.removeprefix(KFD).split("/")[1]]
        if text is None:
            raise PermissionError(path)
        return io.StringIO(text)

    system = SimpleNamespace(
        listdir=listdir,
        path=SimpleNamespace(exists=lambda path: state.device_file),
        access=lambda path, mode: state.access,
        **{name: getattr(os, name) for name in ("R_OK", "W_OK", "environ")},
    )
    for place, name, value in (
        (probe, "import_hip", import_hip),
        (probe.importlib.metadata, "version", version),
        (probe, "Library", library),
        (probe, "mapped_copies", lambda: state.maps),
        (probe, "os", system),
    ):
        monkeypatch.setattr(place, name, value)
    monkeypatch.setattr(probe, "open", opened, raising=False)
    for name in probe._VISIBLE:
        monkeypatch.delenv(name, raising=False)
    return state


def test_probe_of_a_whole_machine(machine):
    found = HipBackend.probe()
    versions = {"hip-python": "7.2.1", "runtime": "7.2.70201"}
    assert (found.usable, found.reason, found.versions, found.devices) == (True, "", versions, 2)


@pytest.mark.parametrize(
    ("version", "variable", "value"),
    [
        ("7.2.53211", "DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING", "2"),
        ("6.4.43484", "DEBUG_HIP_FORCE_GRAPH_QUEUES", "1"),
    ],
)
def test_the_defect_of_a_runtime_is_said_with_the_way_out(machine, monkeypatch, version, variable, value):
    machine.maps = [f"/opt/rocm/lib/libamdhip64.so.{version}"]
    monkeypatch.delenv(variable, raising=False)
    assert f"Set {variable}={value} in the environment" in HipBackend.probe().warning
    monkeypatch.setenv(variable, "0")
    found = HipBackend.probe()
    assert found.usable
    assert f"HIP {version[:3]}" in found.warning
    monkeypatch.setenv(variable, value)
    assert HipBackend.probe().warning == ""


def test_no_defect_of_another_runtime_is_known(machine):
    machine.maps = ["/opt/rocm/lib/libamdhip64.so.7.1.25424"]
    assert HipBackend.probe().warning == ""


def unusable(machine, how):
    match how:
        case "no binding":
            machine.hip = ModuleNotFoundError("No module named 'hip'")
        case "broken binding":
            machine.hip = ImportError("undefined symbol")
        case "old binding":
            machine.hip.HIP_VERSION_MAJOR, machine.hip.HIP_VERSION_MINOR, machine.version = 6, 3, "6.3.0"
        case "new binding":
            machine.hip.HIP_VERSION_MAJOR, machine.version = 8, "11.0"
        case "new binding within the range":
            machine.hip.HIP_VERSION_MAJOR, machine.version = 8, "10.3.0.1+git"
        case "new binding of an unknown version":
            machine.hip.HIP_VERSION_MAJOR, machine.version = 8, None
        case "no library":
            machine.library = OSError(
                "libamdhip64.so: cannot open shared object file: No such file or directory"
            )
        case "library needs another":
            machine.library = OSError(
                "libother.so.1: cannot open shared object file: No such file or directory"
            )
        case "no runtime":

            def function(name):
                raise AttributeError(name)

            machine.library.function = function
        case "two copies":
            machine.library = _hip_library.SeveralLibrariesError("/a/libamdhip64.so and /b/libamdhip64.so")
        case "no device":
            machine.nodes = {"0": "0"}
        case "unreadable nodes":
            machine.nodes = {"0": None, "1": "x"}
        case "no permission":
            machine.access = False
        case "odd":
            machine.hip = SimpleNamespace()


REASONS = {
    "no binding": 'hip-python is not installed. Install it with: pip install "hip-python>=6.4,<11"',
    "broken binding": "hip-python can't be imported (undefined symbol). Install it with: pip",
    "old binding": "hip-python 6.3.0 is too old; 6.4 is the oldest that works. Install it with: pip",
    "new binding": (
        "hip-python 11.0 is too new; its interface may have changed. Install an older one with: pip install "
        '"hip-python>=6.4,<11.0"'
    ),
    "new binding within the range": (
        "hip-python 10.3.0.1+git is too new; its interface may have changed. Install an older one with: pip "
        'install "hip-python>=6.4,<10.3.0.1"'
    ),
    "new binding of an unknown version": (
        "hip-python for HIP 8.2 is too new; its interface may have changed. Install an older one with: "
        'pip install "hip-python>=6.4,<11"'
    ),
    "no library": "no HIP runtime (libamdhip64.so) was found. Install ROCm, or name its folder in ROCM_PATH",
    "library needs another": "the HIP runtime can't be loaded (libother.so.1: cannot open",
    "no runtime": "libamdhip64.so is not a HIP runtime: it has no hipGraphLaunch. Install ROCm",
    "two copies": (
        "there are two copies of the HIP runtime in this process, /a/libamdhip64.so and "
        "/b/libamdhip64.so. Have all packages use one: "
    ),
    "no device": "no AMD GPU is visible to this process. Attach one, or correct HIP_VISIBLE_DEVICES",
    "unreadable nodes": "no AMD GPU is visible to this process.",
    "no permission": "this user may not open /dev/kfd. Add the user to its group, which is render or video",
    "odd": "hip-python can't be imported ('types.SimpleNamespace' object has no attribute",
}


@pytest.mark.parametrize("how", REASONS)
def test_probe_and_open_give_the_reason(machine, how):
    unusable(machine, how)
    check_unusable(HipBackend, "hip", REASONS[how])


def test_what_is_not_expected_is_a_reason_too(machine):
    machine.library = ZeroDivisionError("division by zero")
    found = HipBackend.probe()
    assert (found.usable, found.versions) == (False, {"hip-python": "7.2.1"})
    assert found.reason == "looking for HIP failed with ZeroDivisionError('division by zero')"


def test_a_runtime_whose_file_has_no_version(machine):
    machine.maps = ["/opt/rocm/lib/libamdhip64.so"]
    assert HipBackend.probe().versions == {"hip-python": "7.2.1"}


@pytest.mark.parametrize(
    ("nodes", "variable", "devices"),
    [
        (None, None, None),
        ({"0": "0"}, None, 0),
        ({"0": "0", "1": "5421", "2": "5422"}, None, 2),
        ({"0": "0", "1": "5421", "2": "5422"}, "HIP_VISIBLE_DEVICES", None),
        ({"0": "0", "1": "5421", "2": "5422"}, "ROCR_VISIBLE_DEVICES", None),
        ({"0": "0", "1": "5421", "2": "5422"}, "CUDA_VISIBLE_DEVICES", None),
        ({"0": "0"}, "HIP_VISIBLE_DEVICES", 0),
    ],
)
def test_devices_as_the_system_shows_them(machine, monkeypatch, nodes, variable, devices):
    machine.nodes = nodes
    if variable:
        monkeypatch.setenv(variable, "1")
    found = HipBackend.probe()
    assert (found.usable, found.devices) == (devices != 0, devices)


def test_a_system_without_the_device_file_may_still_do(machine):
    machine.access, machine.device_file, machine.nodes = False, False, None
    assert HipBackend.probe().usable


def test_open_says_why_the_runtime_cannot_be_initialised(machine, monkeypatch):
    def driver(name):
        raise RuntimeError("no luck.")

    backend = HipBackend()
    backend.name = "hip"
    monkeypatch.setattr(HipBackend, "driver_type", staticmethod(driver))
    with pytest.raises(errors.BackendUnavailableError) as raised:
        backend.open()
    assert str(raised.value) == ("backend 'hip' is not available: the runtime can't be initialised: no luck.")
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_a_process_whose_maps_cannot_be_read_has_no_copies(monkeypatch):
    def fail(*args, **how):
        raise PermissionError(args[0])

    monkeypatch.setattr(_hip_library, "open", fail, raising=False)
    assert _hip_library.mapped_copies() == []


# ---- with hip-python -----------------------------------------------------------------------------

PROBE = "from accelerator_graph.backends.hip import HipBackend\nfound = HipBackend.probe()\n"
LOADER = (
    "from accelerator_graph.backends._hip.library import import_hip, mapped_copies, _loader\n"
    "hip = import_hip(); loader = _loader(hip)\n"
)


def pointed(path):
    """Code that has hip-python look for its library at `path`."""
    return LOADER + (
        f"path = {str(path)!r}.encode()\n"
        "if hasattr(loader, 'DLL'): loader.DLL = path\n"
        "else: loader.get_library_path = lambda name, *more, **how: path\n"
    )


def test_a_library_that_is_none(tmp_path):
    pytest.importorskip("hip")
    broken = tmp_path / "libamdhip64.so"
    broken.write_text("no library")
    assert python(pointed(broken) + PROBE + "print(found.reason)").startswith(
        f"the HIP runtime can't be loaded ({broken}: file too short"
    )
    missing = tmp_path / "none" / "libamdhip64.so"
    assert python(pointed(missing) + PROBE + "print(found.reason)").startswith("no HIP runtime (")


def test_a_library_that_is_another(tmp_path):
    pytest.importorskip("hip")
    with open("/proc/self/maps", encoding="utf-8") as maps:
        files = [line.split()[-1] for line in maps if re.search(r"/libm[-.]", line)]
    if not files:
        pytest.skip("there is no other library to be taken for the runtime")
    link = tmp_path / "libamdhip64.so"
    link.symlink_to(files[0])
    printed = python(pointed(link) + PROBE + "print(found.reason)")
    assert printed == f"{link} is not a HIP runtime: it has no hipGraphLaunch. Install ROCm"


# ---- with the runtime ----------------------------------------------------------------------------


def test_versions(backend):
    versions = HipBackend.probe().versions
    assert set(versions) in ({"hip-python", "runtime"}, {"hip-python"})
    assert all(re.fullmatch(r"[0-9.]+", version) for version in versions.values())


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("-1", "no AMD GPU is visible to this process"),
        ("", "no AMD GPU is visible to this process"),
        ("100", "the runtime finds no device"),
    ],
)
def test_without_a_visible_device_it_does_not_open(backend, runtime, value, why):
    code = (
        "from accelerator_graph.errors import BackendUnavailableError\n"
        "from backends.hip.bench import opened\n"
        "try: opened()\n"
        "except BackendUnavailableError as error: print(error)"
    )
    assert python(code, HIP_VISIBLE_DEVICES=value) == (
        f"backend 'hip' is not available: {why}. Attach one, or correct HIP_VISIBLE_DEVICES."
    )
