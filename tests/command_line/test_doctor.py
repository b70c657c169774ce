"""The command `doctor`: each planted ill is found, and nothing is found where all is well."""

from __future__ import annotations

import json
import re
import sys
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest

from accelerator_graph._cli import doctor, packages
from accelerator_graph._cli.trial import Trial, status_in_words
from command_line.calls import command_line
from command_line.ills import installed, path_with, plugged

CLEAN = {"CUDA_VISIBLE_DEVICES": "0", "AMD_LOG_LEVEL": "", "ACCELERATOR_GRAPH_BACKEND": ""}


def examined(folder: Path, *options: str, status: int = 0, **variables: str) -> dict[str, Any]:
    """Run the doctor with a folder on the import path; return what it found, by name."""
    done = command_line(
        "doctor", "--json", *options, **{**CLEAN, "PYTHONPATH": path_with(folder), **variables}
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert done.returncode == status, found["findings"]
    assert found["passed"] is (status == 0)
    return {
        "trials": {each["backend"]: each for each in found["trials"]},
        "findings": {each["about"]: each for each in found["findings"]},
        "facts": found,
    }


def test_nothing_is_found_where_all_is_well(tmp_path: Path) -> None:
    plugged(tmp_path)
    found = examined(tmp_path)
    assert found["trials"]["cpu"]["outcome"] == found["trials"]["plug"]["outcome"] == "passed"
    assert found["trials"]["plug"]["devices"] == 1
    assert not found["findings"].keys() & {"cpu", "plug"}
    assert json.loads(command_line("info", "--json").stdout).keys() < found["facts"].keys()
    assert {row["name"] for row in found["facts"]["backends"]} == found["trials"].keys()


@pytest.mark.parametrize(
    ("ill", "said"),
    [
        ("crash", r"the process was ended by SIGSEGV while replaying the graph on device 0"),
        ("crash at the end", r"the process was ended by SIGSEGV while exiting"),
        ("exit", r"the process ended with the status 3 while opening the backend"),
        ("fail", r"replaying the graph raised DriverError: .*the tape is torn"),
        ("lose a replay", r"replay 1 left 7 in memory instead of 28"),
        ("run at once", r"captured work ran during the capture: 28 is in memory instead of 7"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals for a crash")
def test_a_backend_that_fails_is_found(tmp_path: Path, ill: str, said: str) -> None:
    plugged(tmp_path)
    found = examined(tmp_path, status=1, ILL=ill)
    assert found["trials"]["cpu"]["outcome"] == "passed"
    trial, finding = found["trials"]["plug"], found["findings"]["plug"]
    assert trial["outcome"] == "failed"
    assert re.fullmatch(said, trial["detail"])
    assert finding["fact"] == f"A small capture on backend 'plug' failed: {trial['detail']}."
    assert "accelerator-graph conformance plug" in finding["advice"]
    assert ("in replay" in trial["errors"]) is (ill == "crash")


def test_a_backend_that_hangs_is_ended(tmp_path: Path) -> None:
    plugged(tmp_path)
    found = examined(tmp_path, "--time-limit", "20", status=1, ILL="hang")
    said = "the process did not end within 20 s while replaying the graph on device 0"
    assert found["trials"]["plug"]["detail"] == said
    assert found["trials"]["cpu"]["outcome"] == "passed"
    assert found["findings"]["plug"]["advice"].startswith("Give the trial more time, with --time-limit. Run ")


def test_a_short_time_limit_blames_nobody_for_what_is_not_there(tmp_path: Path) -> None:
    plugged(tmp_path)
    found = examined(tmp_path, "--time-limit", "0.001", status=1, ILL="not there")
    usable = {row["name"] for row in found["facts"]["backends"] if row["usable"]}
    assert found["findings"].keys() & found["trials"].keys() <= {*usable, "plug"}  # these take more time
    unusable = {row["name"] for row in found["facts"]["backends"] if not row["usable"]}
    assert {name for name, trial in found["trials"].items() if trial["outcome"] == "unusable"} >= unusable


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals for a crash")
def test_a_crash_while_the_facts_are_gathered_hides_no_backend(tmp_path: Path) -> None:
    plugged(tmp_path)
    found = examined(tmp_path, status=1, ILL="crash when asked")
    assert "frameworks" not in found["facts"]
    assert found["findings"]["info"]["fact"] == "The process that gathers the facts was ended by SIGSEGV."
    assert found["trials"]["cpu"]["outcome"] == "passed"
    said = "the process was ended by SIGSEGV while opening the backend"
    assert found["trials"]["plug"]["detail"] == said
    shown = command_line("doctor", **CLEAN, PYTHONPATH=path_with(tmp_path), ILL="crash when asked").stdout
    assert re.search(r"  plug +failed +the process was ended by SIGSEGV while opening the backend\.\n", shown)


def test_optimised_python_can_examine_as_well(tmp_path: Path) -> None:
    assert examined(tmp_path, PYTHONOPTIMIZE="1")["trials"]["cpu"]["outcome"] == "passed"


def test_a_backend_that_can_not_be_used_fails_only_if_it_is_named(tmp_path: Path) -> None:
    plugged(tmp_path)
    found = examined(tmp_path, ILL="not there")
    assert found["trials"]["plug"]["outcome"] == "unusable"
    assert found["trials"]["plug"]["detail"] == "its door is locked. Bring the key"
    findings = examined(tmp_path, ILL="not there", status=1, ACCELERATOR_GRAPH_BACKEND="plug")["findings"]
    said = "Backend 'plug' is not available: its door is locked. Bring the key."
    assert findings["ACCELERATOR_GRAPH_BACKEND"]["fact"] == said
    found = examined(tmp_path, "plug", ILL="not there", status=1)
    assert found["trials"].keys() == {"plug"}
    assert found["findings"]["plug"]["fact"] == "Backend 'plug' can't be used: its door is locked."
    assert examined(tmp_path, "cpu", ILL="not there")["trials"].keys() == {"cpu"}


def test_a_known_defect_comes_with_the_way_out(tmp_path: Path) -> None:
    plugged(tmp_path, work=False)
    found = examined(tmp_path, ILL="a defect")
    assert found["findings"]["plug"] == {
        "about": "plug",
        "fact": "Its tapes tear.",
        "advice": "Use tapes of 1981.",
    }
    assert found["trials"]["plug"]["outcome"] == "untried"
    assert "has no work for the conformance kit" in found["trials"]["plug"]["detail"]


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("used", None),
        ("not used, since ACCELERATOR_GRAPH_PURE_PYTHON is set", None),
        (
            "not built, so replays are slower. Build it.",
            "The C extension is not built, so replays are slower.",
        ),
        ("can't be loaded (wrong ABI). Build it.", "The C extension can't be loaded (wrong ABI)."),
        (
            "built from another version of the library and not used. Build it.",
            "The C extension is built from another version of the library and not used.",
        ),
    ],
)
def test_an_extension_that_is_missing_is_found(said: str, fact: str | None) -> None:
    found = list(doctor.fact_findings({"problem": "", "extension": said}))
    assert found == ([] if fact is None else [("C extension", fact, "Build it.")])


def test_packages_that_disturb_are_found(tmp_path: Path) -> None:
    plugged(tmp_path, target="the_plugin:Nothing")
    installed(tmp_path, "hip-python-interop", "7.2.2.562.43")
    installed(tmp_path, "nvidia-nccl-cu13", "2.28.9")
    installed(tmp_path, "nvidia-nccl-cu12", "2.28.10")
    installed(tmp_path, "cupy", "14.2.0")
    (tmp_path / "cupy.py").write_text("raise ImportError('libcublas is missing.')")
    findings = examined(tmp_path)["findings"]
    assert findings["plug"]["fact"].startswith("Backend 'plug' can't be loaded: ")
    assert "installs a package `cuda`" in findings["hip-python-interop"]["fact"]
    assert "vllm#52504" in findings["nvidia-nccl-cu13 2.28.9"]["fact"]
    assert not [name for name in findings if "cu12" in name]
    raised = "importing it raises ImportError: libcublas is missing."
    assert findings["cupy"]["fact"] == f"cupy is installed, but {raised}"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals for a crash")
def test_a_framework_that_crashes_is_found(tmp_path: Path) -> None:
    installed(tmp_path, "cupy", "14.2.0")
    (tmp_path / "cupy.py").write_text("import faulthandler; faulthandler._sigsegv()")
    findings = examined(tmp_path)["findings"]
    assert findings["cupy"]["fact"] == "The process was ended by SIGSEGV while importing cupy."


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux' loader is asked for its files")
@pytest.mark.skipif(bool(find_library("amdhip64")), reason="AMD's runtime is installed, as one more copy")
def test_several_copies_of_a_library_are_found(tmp_path: Path) -> None:
    for folder in ("mine", "rocm/lib"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "libamdhip64.so.7.2.1").write_text(folder)
    (tmp_path / "mine" / "libamdhip64.so").symlink_to("libamdhip64.so.7.2.1")
    variables = {"LD_LIBRARY_PATH": str(tmp_path / "mine"), "ROCM_PATH": str(tmp_path / "rocm")}
    finding = examined(tmp_path, **variables)["findings"]["libamdhip64.so"]
    assert finding["fact"].startswith("There are 2 different copies of AMD's HIP runtime: ")
    assert str(tmp_path / "mine" / "libamdhip64.so") in finding["fact"]
    assert str(tmp_path / "rocm/lib/libamdhip64.so.7.2.1") in finding["fact"]
    del variables["ROCM_PATH"]
    assert "libamdhip64.so" not in examined(tmp_path, **variables)["findings"]


def test_variables_that_disturb_are_found(tmp_path: Path) -> None:
    findings = examined(
        tmp_path,
        status=1,  # the last variable makes every capture fail
        CUDA_LAUNCH_BLOCKING="1",
        CUDA_VISIBLE_DEVICES="",
        HIP_VISIBLE_DEVICES="0",
        PYTORCH_NO_CUDA_MEMORY_CACHING="1",
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False,backend:cudaMallocAsync",
        PYTORCH_ALLOC_CONF="expandable_segments:True",
        AMD_LOG_LEVEL="4",
        DEBUG_HIP_GRAPH_DOT_PRINT="0",
        ACCELERATOR_GRAPH_PURE_PYTHON="1",
        ACCELERATOR_GRAPH_BAKEND="cuda",
        ACCELERATOR_GRAPH_CHECK="often",
    )["findings"]
    assert {name for name in findings if name.isupper()} == {
        *("CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "AMD_LOG_LEVEL"),
        *("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_CUDA_ALLOC_CONF"),
        *("ACCELERATOR_GRAPH_PURE_PYTHON", "ACCELERATOR_GRAPH_BAKEND"),
        "ACCELERATOR_GRAPH_CHECK",
    }
    assert "did you mean ACCELERATOR_GRAPH_BACKEND?" in findings["ACCELERATOR_GRAPH_BAKEND"]["fact"]
    assert "hides every NVIDIA GPU" in findings["CUDA_VISIBLE_DEVICES"]["fact"]


def test_people_read_the_same(tmp_path: Path) -> None:
    plugged(tmp_path)
    variables = {**CLEAN, "PYTHONPATH": path_with(tmp_path), "AMD_LOG_LEVEL": "4"}
    done = command_line("doctor", **variables)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\n  cpu +passed +captured and replayed on 1 device, python ", done.stdout)
    assert re.search(
        r"\n   \d  AMD_LOG_LEVEL: AMD_LOG_LEVEL=4 makes AMD's runtime write its log", done.stdout
    )
    assert "\n      -> Unset it, except to look for the call that broke a capture.\n" in done.stdout


# ---- without processes ---------------------------------------------------------------------------


def facts(**row: Any) -> dict[str, Any]:
    return {
        "backends": [{"name": "cuda", "versions": {}, "warning": "", "loaded": True, **row}],
        "frameworks": [],
    }


def test_a_gpu_whose_backend_can_not_be_used_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial("cuda", "unusable", "cuda-python is not installed. Install it with: pip")
    monkeypatch.setattr(packages, "gpu_is_visible", lambda backend: False)
    assert list(doctor.trial_findings([trial], facts())) == []
    monkeypatch.setattr(packages, "gpu_is_visible", lambda backend: backend == "cuda")
    [finding] = doctor.trial_findings([trial], facts())
    assert finding.fact == (
        "This machine has an NVIDIA GPU, but backend 'cuda' can't be used: cuda-python is not installed."
    )
    assert finding.advice == "Install it with: pip."
    [finding] = doctor.trial_findings([trial._replace(detail="cuInit returned 803")], facts())
    assert "another finding" in finding.advice


def test_a_list_of_devices_is_a_finding_if_no_gpu_can_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in packages.VENDORS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "99")
    assert list(packages.variable_findings([], [])) == []
    [finding] = packages.variable_findings([], ["hip", "cuda"])
    assert finding.fact == "CUDA_VISIBLE_DEVICES=99 limits which GPUs the process sees."
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    [finding] = packages.variable_findings([], ["cuda"])
    assert "hides every NVIDIA GPU" in finding.fact


@pytest.mark.parametrize(
    ("version", "gpus", "said"),
    [
        ("2.11.0+cpu", {"cuda"}, "an NVIDIA GPU"),
        ("2.11.0+rocm7.2", {"cuda"}, "an NVIDIA GPU"),
        ("2.11.0+cu130", {"hip"}, "an AMD GPU"),
        ("2.11.0+cu130", {"cuda"}, ""),
        ("2.11.0", {"cuda"}, ""),
        ("2.11.0+cpu", set(), ""),
    ],
)
def test_a_framework_built_for_another_device_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, version: str, gpus: set[str], said: str
) -> None:
    monkeypatch.setattr(packages, "gpu_is_visible", gpus.__contains__)
    found = list(packages.framework_build_findings([{"name": "torch", "installed": version}]))
    assert len(found) == bool(said)
    assert all(said in each.fact for each in found)


@pytest.mark.parametrize(
    ("runtime", "said"),
    [
        ("6.4.43484", ["a captured fill of host memory"]),
        ("7.0.51831", ["has not run on this version"]),
        ("7.2.53210", ["has not run on this version", "can lose nodes"]),
        ("7.2.53211", ["can lose nodes"]),
        ("7.14.1", ["has not run on this version"]),
        ("6.3.1", []),
    ],
)
def test_versions_of_hip_that_are_known_to_be_bad(runtime: str, said: list[str]) -> None:
    found = list(packages.package_findings(facts(name="hip", versions={"runtime": runtime})))
    found = [each for each in found if each.about == f"hip runtime {runtime}"]  # not of this machine
    assert len(found) == len(said)
    for finding, words in zip(found, said, strict=True):
        assert words in finding.fact


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, ""),
        (1, "ended with the status 1"),
        (-9, "was ended by SIGKILL"),
        (-63, "was ended by signal 63"),
        (0xC0000005, "was ended with the status 0xc0000005"),
    ],
)
def test_what_an_exit_status_says(status: int, said: str) -> None:
    if status == -9 and sys.platform == "win32":
        pytest.skip("Windows has no SIGKILL")
    assert status_in_words(status) == said
