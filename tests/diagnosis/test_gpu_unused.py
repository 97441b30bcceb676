"""A GPU is there and the training runs on the CPU: why, and the one command; silent where the CPU was chosen."""

from __future__ import annotations

import textwrap

import pytest
from build import TRAINER, causes, ordinary_run

from holter.diagnosis.core.doctor import verdict
from holter.finding import Finding

FILE = "/home/u/train.py"
PLAIN = """
    import torch
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters())
"""
CHOICE = 'device = "cuda" if torch.cuda.is_available() else "cpu"\nmodel.to(device)'
ON_PURPOSE = {
    "a device": 'model.to(torch.device("cpu"))',
    "an option that is the CPU by default": 'parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])',
    "a place": 'with tf.device("/CPU:0"):\n    train()',
    "a trainer's setting": "args = TrainingArguments(out, use_cpu=True)",
    "an accelerator": 'trainer = Trainer(accelerator="cpu")',
    "hidden devices": 'tf.config.set_visible_devices([], "GPU")',
    "a variable": 'os.environ["CUDA_VISIBLE_DEVICES"] = ""',
}
NOT_ON_PURPOSE = {
    "only where there is no GPU": CHOICE,
    "in the other branch": 'if torch.cuda.is_available():\n    device = "cuda"\nelse:\n    device = "cpu"',
    "of a file": CHOICE + '\nstate = torch.load("last.pt", map_location="cpu")',
    "of what is taken home": CHOICE + '\nseen.append(out.to("cpu"))',
    "asked": CHOICE + '\nif device == "cpu":\n    print("slow")',
}


def run(text: str = PLAIN, gpu: dict | None = None, command=("python", "train.py"), cuda="13.0", env=None, **settings):
    """A minute of training on the CPU beside an idle GPU; the build knows CUDA unless it is said otherwise."""
    record = ordinary_run(command=command, env=env or {})
    row = {"index": 0, "name": "NVIDIA H200", "total": 150e9, "used": 1e9, **(gpu or {})}
    record.sample(1, nvidia={"list": [row], "cuda": cuda})
    record.event("adapter", 1, pid=TRAINER, framework="torch", version="2.13.0", state="on")
    record.event(
        "made", 1, pid=TRAINER, what="model", name="Linear", file=FILE, line=2, code="model = torch.nn.Linear(8, 8)"
    )
    event = {"framework": "torch", "intra_op": 2, "inter_op": 1, "device": "cpu", "built_for": "cuda 13.0", **settings}
    record.event("settings", 6, pid=TRAINER, **event)
    record.sources = {FILE: textwrap.dedent(text).strip().splitlines()}
    return record.exit(60, 0)


def finding(record) -> Finding:
    return next(one for one in verdict(record).findings if one.cause == "cpu.gpu-unused")


def test_a_build_without_gpus_is_named_with_the_build_to_install():
    found = finding(run(built_for="cpu"))

    assert found.grade == "established"
    assert "left NVIDIA H200 unused: PyTorch 2.13.0 is built without GPUs" in found.claim
    assert found.cures[0].how == "pip install --force-reinstall torch"


def test_tensorflow_without_gpus_is_named_with_its_own_package():
    record = run(framework="tensorflow", built_for="cpu")
    record.event("adapter", 1, pid=TRAINER, framework="tensorflow", version="2.21.0", state="on")

    found = finding(record)
    assert "TensorFlow 2.21.0 is built without GPUs" in found.claim
    assert "tensorflow[and-cuda]" in found.cures[0].how


@pytest.mark.parametrize("value", ["", "-1"])
def test_a_variable_that_hides_the_gpus_is_named(value: str):
    found = finding(run(env={"CUDA_VISIBLE_DEVICES": value}))

    assert f"CUDA_VISIBLE_DEVICES is set to '{value}'" in found.claim
    assert found.cures[0].how == "unset CUDA_VISIBLE_DEVICES"


def test_a_driver_that_is_too_old_for_the_build_is_named():
    found = finding(run(CHOICE, cuda="12.4"))

    assert "PyTorch is built for CUDA 13.0, and the driver runs CUDA 12.4 at most" in found.claim


def test_a_python_made_for_intel_is_named():
    record = run(built_for="cpu", translated=True)
    record.timeline[:] = [line for line in record.timeline if "nvidia" not in line]
    record.meta["platform"] = "macOS-14.5-x86_64-i386-64bit"

    assert "this Python was made for Intel" in finding(record).claim


def test_a_model_that_is_never_moved_is_named_by_its_line():
    found = finding(run())

    assert (found.grade, found.culprit.line) == ("supported", 2)
    assert '+ model = torch.nn.Linear(8, 8).to("cuda")' in found.cures[0].how


@pytest.mark.parametrize("text", ON_PURPOSE.values(), ids=ON_PURPOSE)
def test_a_script_that_chose_the_cpu_is_left_alone(text: str):
    assert "cpu.gpu-unused" not in causes(verdict(run(text, built_for="cpu")))


@pytest.mark.parametrize("words", [["--device=cpu"], ["--device", "cpu"], ["--no-cuda"], ["--cpu"], ["device=cpu"]])
def test_a_command_that_chose_the_cpu_is_left_alone(words: list[str]):
    assert "cpu.gpu-unused" not in causes(verdict(run(CHOICE, built_for="cpu", command=("python", "train.py", *words))))


@pytest.mark.parametrize("text", NOT_ON_PURPOSE.values(), ids=NOT_ON_PURPOSE)
def test_a_script_that_falls_back_to_the_cpu_is_told(text: str):
    assert "cpu.gpu-unused" in causes(verdict(run(text, built_for="cpu")))


@pytest.mark.parametrize(
    ("gpu", "settings"),
    [({"tree": 2e9}, {}), ({}, {"device": "cuda"})],
    ids=["the run holds memory on it", "the weights are there"],
)
def test_a_run_that_uses_its_gpu_hears_nothing(gpu: dict, settings: dict):
    assert "cpu.gpu-unused" not in causes(verdict(run(gpu=gpu, **settings)))


def test_without_a_gpu_nothing_is_said():
    record = run(built_for="cpu")
    record.timeline[:] = [line for line in record.timeline if "nvidia" not in line]

    assert "cpu.gpu-unused" not in causes(verdict(record))
