"""The benchmark for accelerators: its three calls end to end on a processor, and what happens when something breaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from _accelerator.gpu_tests import OPTIONS
from _accelerator.plan import ROOT, Planned, planned
from _accelerator.runner import Record, Runner
from _accelerator.wheels import describe_checkout, download, install, report
from accelerator import BUDGET_S

from hpcbench.characterisation.kernel_times import kind_of
from hpcbench.data.dali_samples import has_dali
from hpcbench.results.run_folder import RunFolder
from tests.benchmarks.bare_python import make_bare_python, with_needs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def start(python: Path, call: str, out: Path, *words: str) -> subprocess.Popen[str]:
    command = [str(python), str(BENCHMARKS / "accelerator.py"), call, "--smoke", "--out", str(out), *words]
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without pandas, Matplotlib, pytest-xdist and whatever else nobody carries."""
    return make_bare_python(tmp_path_factory.mktemp("bare") / "environment")


def test_a_bare_machine_has_no_more_than_what_it_has_and_what_is_carried(bare_python: Path) -> None:
    code = "import importlib.util, sys\nfor name in sys.argv[1:]: print(importlib.util.find_spec(name) is not None)"
    names = ["torch", "lightning_fabric", "h5py", "yaml", "hypothesis", "rich"]
    lacking = ["mpi4py", "pandas", "matplotlib", "xdist", "tfrecord", "tensorboard", "pytorch_optimizer", "hpcbench"]
    done = subprocess.run([bare_python, "-I", "-c", code, *names, *lacking], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * len(names) + ["False"] * len(lacking)


@pytest.mark.slow
def test_tests_are_found_without_the_plugins_that_the_project_asks_for(bare_python: Path) -> None:
    words = [*OPTIONS, "--collect-only", "tests/gpu"]
    command = [bare_python, "-I", "-m", "pytest", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    files = {path.name for path in (ROOT / "tests" / "gpu").glob("test_*.py")}
    assert files == {line.partition("::")[0].rpartition("/")[2] for line in done.stdout.splitlines() if "::" in line}


def test_losses_of_a_run_are_read_without_pandas(bare_python: Path, tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run").append_rows("steps.csv", [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}])
    code = "from pathlib import Path; from tests.gpu.run_losses import losses; print(losses(Path('run')))"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"
    done = subprocess.run([bare_python, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[0.5, 0.25]", done.stderr


def outcomes(process: subprocess.Popen[str], out: Path) -> dict[str, set[str]]:
    """The functions of ``tests/gpu`` by what came of them; each may have several parameters."""
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, f"{output}\n{errors[-5000:]}"
    found: dict[str, set[str]] = {"passed": set(), "skipped": set()}
    for entry in json.loads((out / "accelerator_tests.json").read_text())["measurements"]:
        assert entry["status"] == "measured"
        for part in entry["parts"]:
            if part["outcome"] != "running":
                found[part["outcome"]].add(part["test"].partition("::")[2].partition("[")[0])
    return found


NOT_ON_A_PROCESSOR = {
    "training": {"test_a_compiled_model_trains_the_same"} if "triton" not in with_needs(("torch",)) else set(),
    "characterisation": set(),
    "others": {
        "test_one_launch_of_each_kernel_works_on_all_layers",
        "test_batches_on_the_device_equal_those_of_the_torch_loader", "test_training_is_the_same_with_both_loaders",
    },
}  # fmt: skip
"""Tests of Triton and DALI: a PyTorch for accelerators brings Triton."""


@pytest.mark.slow
@pytest.mark.parametrize("which", list(NOT_ON_A_PROCESSOR))
def test_tests_that_need_an_accelerator_are_tried_on_a_processor_of_a_bare_machine(
    which: str, bare_python: Path, tmp_path: Path
) -> None:
    """All but those above: no line of them is met for the first time on a machine that is lent."""
    names = {path.stem for path in (ROOT / "tests" / "gpu").glob("test_*.py")}
    alone = {f"test_{each}" for each in NOT_ON_A_PROCESSOR if each != "others"}
    chosen = names - alone if which == "others" else {f"test_{which}"}
    found = outcomes(start(bare_python, "tests", tmp_path, "--commit", "0123abc", "--only", *sorted(chosen)), tmp_path)
    assert found["skipped"] - found["passed"] == NOT_ON_A_PROCESSOR[which]


@pytest.mark.slow
@pytest.mark.skipif(not has_dali(), reason='needs NVIDIA DALI (pip install "hpcbench-ml[dali]")')
def test_tests_of_dali_are_tried_on_a_processor(tmp_path: Path) -> None:
    found = outcomes(start(Path(sys.executable), "tests", tmp_path, "--only", "test_dali"), tmp_path)
    assert (len(found["passed"]), len(found["skipped"])) == (2, 0)


@pytest.mark.slow
def test_both_calls_that_measure_on_a_processor_of_a_bare_machine(bare_python: Path, tmp_path: Path) -> None:
    calls = {call: start(bare_python, call, tmp_path, "--commit", "0123abc") for call in ("train", "rest")}
    for call, process in calls.items():
        output, errors = process.communicate(timeout=600)
        record = json.loads((tmp_path / f"accelerator_{call}.json").read_text())
        assert process.returncode == 0, f"{output}\n{errors[-5000:]}"
        assert record["commit"] == "0123abc"
        assert record["machine"]["cores"] >= 1
        assert record["goals"]["cosmoflow batch 1"]["samples_per_s"] == 410
        names = [entry["name"] for entry in record["measurements"]]
        assert names == [one.name for one in planned(call, smoke=True)]
        assert {entry["status"] for entry in record["measurements"]} <= {"measured", "skipped"}
    assert len(list(tmp_path.iterdir())) == 2
    steps = {
        entry["name"]: entry for entry in json.loads((tmp_path / "accelerator_train.json").read_text())["measurements"]
    }
    for name in ("cosmoflow batch 2: graph", "deepcam batch 2: eager", "cosmoflow batch 2: graph, from files"):
        found = steps[name]["result"]
        assert found["samples_per_s"] == pytest.approx(2 / found["step_s"])
        assert found["step_s_min"] <= found["step_s"] <= found["step_s_max"]
        assert found["peak_memory_bytes"] > 2**20
        assert found["flops_per_s"] > 0
    eager = steps["cosmoflow batch 2: eager"]["result"]
    assert eager["kernel_ms_by_kind"]["convolution"] > 0
    assert min(eager["share_of_matrix_peak"], eager["share_of_copy_bandwidth"]) > 0
    assert steps["cosmoflow batch 2: hpcbench train"]["result"]["steps"] == 2


WORKER = """
import json, os, signal, sys, time
for line in sys.stdin:
    settings = json.loads(line)["settings"]
    if settings.get("die"): os.kill(os.getpid(), signal.SIGSEGV)
    if settings.get("hang"): time.sleep(600)
    print(json.dumps({"part": os.getpid()}), flush=True)
    result = {"pid": os.getpid(), "settings": settings}
    print(json.dumps({"status": "measured", "result": result, "machine": {"seen": 1}}), flush=True)
"""


def run(plan: list[Planned], path: Path, budget_s: float) -> dict[str, Any]:
    record = Record(path, {"machine": {}})
    Runner(record, lambda _: [sys.executable, "-c", WORKER], {}, time.monotonic() + budget_s).run(plan)
    written: dict[str, Any] = json.loads(path.read_text())
    return written


def test_a_processor_tries_every_value_of_every_setting_of_a_step() -> None:
    """No way to step is met for the first time on a machine that is lent for an hour."""

    def tried(smoke: bool) -> set[tuple[str, Any]]:
        steps = [one.settings for one in planned("train", smoke) if one.kind == "step"]
        return {(name, value) for settings in steps for name, value in settings.items() if name != "batch"}

    assert tried(smoke=True) == tried(smoke=False)
    assert len(tried(smoke=True)) > 15


def test_what_matters_most_fits_into_the_call() -> None:
    """If each measurement takes as long as it is expected to; what comes later is named where no time is left."""
    plan, within = planned("train", smoke=False), set[str]()
    for last, one in enumerate(plan, 1):
        if sum(each.needs_s for each in plan[:last]) <= BUDGET_S:
            within.add(one.name)
    ways = ("graph", "eager", "graph, from memory", "graph, from files", "compiled, graph", "hpcbench train")
    assert {f"{batch}: {way}" for batch in ("cosmoflow batch 1", "deepcam batch 8") for way in ways} <= within
    assert {f"{app} batch {size}: graph" for app in ("cosmoflow", "deepcam") for size in (16, 4, 1)} <= within


@pytest.mark.parametrize("call", ["train", "rest"])
def test_a_processor_tries_each_kind_of_measurement_on_each_application(call: str) -> None:
    """And steps with samples from everywhere: each application reads files of its own, and trains with its own code."""

    def tried(smoke: bool) -> set[tuple[str, ...]]:
        each = [(one.kind, one.settings) for one in planned(call, smoke)]
        return {(kind, settings.get("app", ""), settings.get("source", "")) for kind, settings in each}

    assert tried(smoke=True) == tried(smoke=False)


def test_a_measurement_that_dies_or_hangs_leaves_the_others(tmp_path: Path) -> None:
    plan = [
        Planned("first", "a", "x", {}),
        Planned("second", "a", "x", {}),
        Planned("dies", "a", "x", {"die": 1}),
        Planned("hangs", "a", "x", {"hang": 1}, limit_s=0.5),
        Planned("last", "a", "x", {}),
        Planned("other group", "b", "x", {}),
    ]
    written = run(plan, tmp_path / "record.json", 100)
    first, second, dies, hangs, last, other = written["measurements"]
    assert (dies["status"], dies["reason"]) == ("failed", "its process ended by SIGSEGV")
    assert (hangs["status"], hangs["reason"]) == ("failed", "ended after 0 s, its limit")
    assert {entry["status"] for entry in (first, second, last, other)} == {"measured"}
    assert first["result"] == second["result"]  # the same process
    assert len({entry["result"]["pid"] for entry in (first, last, other)}) == 3
    assert first["parts"] == [first["result"]["pid"]]
    assert written["machine"] == {"seen": 1}


def test_what_the_device_can_do_is_known_to_the_process_after_the_one_that_measured_it(tmp_path: Path) -> None:
    plan = [
        Planned("before", "a", "x", {}),
        Planned("roofs", "a", "roofs", {}),
        Planned("dies", "a", "x", {"die": 1}),
        Planned("after", "a", "x", {"batch": 2}),
        Planned("other group", "b", "x", {}),
    ]
    before, roofs, _, after, other = run(plan, tmp_path / "record.json", 100)["measurements"]
    assert after["result"]["pid"] != roofs["result"]["pid"]
    assert after["result"]["settings"] == {"batch": 2, "roofs": roofs["result"]}
    assert after["settings"] == {"batch": 2}
    assert before["result"]["settings"] == other["result"]["settings"] == {}


def test_what_does_not_fit_into_the_time_is_named(tmp_path: Path) -> None:
    plan = [Planned("long", "a", "x", {}, needs_s=50), Planned("short", "a", "x", {}, needs_s=1)]
    long, short = run(plan, tmp_path / "record.json", 40)["measurements"]
    assert long["status"] == "skipped"
    assert long["reason"] in ("about 50 s needed, 40 s left", "about 50 s needed, 39 s left")
    assert short["status"] == "measured"


@pytest.mark.parametrize(("name", "kind"), [
    ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "convolution"),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816wgrad_optimized_bf16_64x64_32x6_nhwc>", "convolution"),
    ("void at::native::conv_depthwise2d_forward_kernel<3, c10::BFloat16, int>", "convolution"),
    ("nvjet_hsh_128x64_64x8_2x1_v_bz_TNT", "matrix product"),
    ("void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float>", "copy and layout"),
    ("Memcpy DtoD (Device -> Device)", "copy and layout"),
    ("void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>", "copy and layout"),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512>", "normalisation"),
    ("triton_red_fused__native_batch_norm_legit_functional_convolution_5", "normalisation"),
    ("triton_poi_fused_convolution_relu_7", "elementwise"),
    ("void at::native::(anonymous namespace)::max_pool3d_with_indices_single_out_frame<float>", "pooling"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "communication"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "loss and sums"),
    ("aten::nll_loss2d_forward", "loss"),
    ("void (anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>", "loss"),
    ("aten::mkldnn_convolution", "convolution"),
])  # fmt: skip
def test_kernels_are_sorted_by_their_names(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_packages_of_the_machine_are_never_carried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert download(tmp_path / "wheels", "3.12", None, ["nvidia-nccl-cu13", "torch==2.11"]) == 2
    assert "nvidia-nccl-cu13, torch==2.11: the machine's own PyTorch" in capsys.readouterr().out
    assert not (tmp_path / "wheels").exists()


def test_too_many_wheels_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "huge-1-py3-none-any.whl").open("wb") as file:
        file.truncate(61 * 2**20)
    assert report(tmp_path) == 2
    assert "too much to carry: name what the machine has with --present" in capsys.readouterr().out


def test_only_what_is_missing_is_installed_and_elsewhere(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "pytest-0.0.1-py3-none-any.whl").write_bytes(b"not looked at: pytest is there")
    found = install(wheels, tmp_path / "target")
    assert found["installed"] == []
    assert "pytest" in found["there_already"]
    (wheels / "no_such_thing-1-py3-none-any.whl").write_bytes(b"no wheel")
    with pytest.raises(SystemExit, match="do not fit this Python"):
        install(wheels, tmp_path / "target")


def test_a_checkout_is_found_without_being_installed(tmp_path: Path) -> None:
    describe_checkout(tmp_path)
    code = (
        "from importlib.metadata import distribution as d\n"
        "print([p.name for p in d('hpcbench-ml').entry_points if p.group == 'hpcbench.apps'])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "['cosmoflow', 'deepcam']"
