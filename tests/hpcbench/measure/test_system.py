"""The system description, judged by the official checker and by files of a machine that is not this one."""

import json
import platform
import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from mlperf_logging.result_summarizer import result_summarizer
from mlperf_logging.system_desc_checker import system_desc_checker

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.measure import system
from hpcbench.measure.system import filesystem, networking, processor, system_description

PUBLISHED = Path(__file__).parents[2] / "data" / "logs" / "v1.0-nvidia-cosmoflow-system.json"


@pytest.fixture(scope="module")
def description() -> dict:
    config = resolve(find_application("cosmoflow"), None, None, {"submission.org": "Somewhere"})
    return system_description(config, nodes=3)


def test_it_has_the_33_keys_of_a_published_description(description):
    assert len(description) == 33
    assert set(description) == set(json.loads(PUBLISHED.read_text()))


def test_the_official_checker_accepts_it(description, tmp_path):
    path = tmp_path / "system.json"
    path.write_text(json.dumps(description))
    valid, name, prefix, _ = system_desc_checker.check_system_desc(str(path), "hpc", "3.0.0")
    assert valid
    assert (name, prefix.split(",")[0]) == (platform.node(), "Somewhere")


def test_counts_are_texts_that_the_summarizer_reads_as_numbers(description):
    assert result_summarizer is not None
    counts = ("number_of_nodes", "host_processors_per_node", "host_processor_core_count", "accelerators_per_node")
    assert all(isinstance(description[key], str) and int(description[key]) >= 0 for key in counts)
    assert description["number_of_nodes"] == "3"


def test_all_values_are_texts_but_the_software_stack(description):
    stack = description["other_software_stack"]
    assert all(isinstance(value, str) for key, value in description.items() if key != "other_software_stack")
    assert stack["torch"] == torch.__version__
    assert stack["python"] == platform.python_version()
    assert description["framework"] == f"PyTorch {torch.__version__}"


def test_memory_and_storage_are_those_of_the_machine(description):
    assert description["host_memory_capacity"] == f"{psutil.virtual_memory().total / 2**30:.1f} GiB"
    assert description["host_storage_capacity"] == f"{shutil.disk_usage('.').total / 2**30:.1f} GiB"


def test_it_names_no_user_and_no_path(description):
    text = json.dumps(description)
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text


def test_storage_of_a_folder_that_does_not_exist_yet_is_that_of_its_parent(tmp_path):
    assert system.memory_and_storage(tmp_path / "a" / "b") == system.memory_and_storage(tmp_path)


def test_proc_is_a_proc_filesystem():
    if not Path("/proc/self/mounts").exists():
        pytest.skip("needs Linux")
    assert filesystem(Path("/proc/self")) == "proc"


def test_processor_of_two_sockets(monkeypatch):
    """Output of lscpu in its nested form (util-linux 2.38), for the node of the published CosmoFlow run."""
    socket = [{"field": "Core(s) per socket:", "data": "64"}, {"field": "Socket(s):", "data": "2"}]
    caches = [{"field": "L1d:", "data": "4 MiB"}, {"field": "L3:", "data": "512 MiB (32 instances)"}]
    cpu = {"lscpu": [
        {"field": "Vendor ID:", "data": "AuthenticAMD", "children": [
            {"field": "Model name:", "data": "AMD EPYC 7742 64-Core Processor", "children": socket}]},
        {"field": "Caches (sum of all):", "data": None, "children": caches},
    ]}  # fmt: skip
    monkeypatch.setattr(system.subprocess, "run", lambda *a, **k: SimpleNamespace(stdout=json.dumps(cpu)))
    monkeypatch.setattr(system.psutil, "cpu_count", lambda logical=True: 256 if logical else 128)
    found = processor()
    assert found["host_processors_per_node"] == "2"
    assert found["host_processor_model_name"] == "AMD EPYC 7742 64-Core Processor"
    assert (found["host_processor_core_count"], found["host_processor_vcpu_count"]) == ("64", "128")
    assert found["host_processor_caches"] == "L1d 4 MiB, L3 512 MiB (32 instances)"


def test_without_lscpu_the_counts_are_those_of_psutil(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert processor()["host_processor_core_count"] == str(psutil.cpu_count(logical=False) or "")


def test_networking_lists_infiniband_and_real_ethernet(tmp_path):
    rate = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1"
    rate.mkdir(parents=True)
    (rate / "rate").write_text("200 Gb/sec (4X HDR)\n")
    for name, speed, real in (("eth0", "100000\n", True), ("docker0", "10000\n", False), ("eth1", "-1\n", True)):
        folder = tmp_path / "net" / name
        folder.mkdir(parents=True)
        (folder / "speed").write_text(speed)
        if real:
            (folder / "device").mkdir()
    assert networking(tmp_path) == "mlx5_0 200 Gb/sec (4X HDR), eth0 100 Gb/sec"


def see_accelerators(monkeypatch, count):
    module = type(
        "M", (), {"get_device_properties": lambda index: type("P", (), {"name": "Z1", "total_memory": 2**36})}
    )
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("xpu"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)


def test_accelerators_that_a_launcher_shows_one_to_each_rank_are_counted(monkeypatch):
    see_accelerators(monkeypatch, 1)
    config = resolve(find_application("cosmoflow"), None, None, {})
    assert system_description(config, accelerators=4)["accelerators_per_node"] == "4"
    see_accelerators(monkeypatch, 8)
    assert system_description(config, accelerators=4)["accelerators_per_node"] == "8"


def test_an_accelerator_of_any_kind_is_described(monkeypatch):
    see_accelerators(monkeypatch, 6)
    found = system.accelerator()
    assert found["accelerators_per_node"] == "6"
    assert (found["accelerator_model_name"], found["accelerator_memory_capacity"]) == ("Z1", "64.0 GiB")
    assert found["accelerator_frequency"] == ""
