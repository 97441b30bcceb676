"""What the interpreter that would run the training says: of itself, of its packages, of a framework's devices.

Started by path in that interpreter, as the agent is: the standard library only, Python 3.9. Of the words that it takes
`packages` imports no framework; `torch` and `tensorflow` import the one.
"""

import json
import os
import sys
from typing import Any

if sys.path and os.path.realpath(sys.path[0] or os.curdir) == os.path.dirname(os.path.realpath(__file__)):
    del sys.path[0]  # our own folder, which Python puts first
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

# Names of distributions: the frameworks, what runs training loops on them, and what both are often at odds over.
PACKAGES = (
    "torch", "torchvision", "torchaudio", "torchtext", "torchdata", "torchmetrics", "triton", "xformers", "flash-attn",
    "tensorflow", "tensorflow-cpu", "tensorflow-macos", "tensorflow-metal", "tensorflow-rocm", "tf-nightly",
    "tensorflow-text", "tensorflow-probability",
    "keras", "tf-keras", "keras-cv", "keras-hub", "jax", "jaxlib", "flax", "optax", "lightning", "pytorch-lightning",
    "transformers", "accelerate", "datasets", "tokenizers", "safetensors", "huggingface-hub", "peft", "trl",
    "bitsandbytes", "deepspeed", "diffusers", "timm", "sentence-transformers", "ultralytics", "fastai",
    "numpy", "scipy", "pandas", "scikit-learn", "protobuf", "ml-dtypes", "h5py",
)  # fmt: skip


def packages() -> "dict[str, Any]":
    """No framework is imported: the versions are those that the installer has written down."""
    import platform
    from importlib import metadata

    found: dict[str, str] = {}
    needs: list[tuple[str, str, str]] = []
    for name in PACKAGES:
        try:
            one = metadata.distribution(name)
            found[name] = str(one.version)
            needs += [(name, str(one.version), need) for need in one.requires or ()]
        except Exception:  # not installed, or its metadata are damaged
            continue
    clashes, because = _clashes(needs)
    kind = "conda" if os.path.isdir(os.path.join(sys.prefix, "conda-meta")) else ""
    kind = "virtual" if sys.prefix != sys.base_prefix else kind
    _find_ours()
    from _holter.agent.observe.rosetta import is_translated

    return {
        "executable": sys.executable,
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "machine": platform.machine(),
        "bits": sys.maxsize.bit_length() + 1,
        "translated": is_translated(),
        "environment": kind,
        "packages": found,
        "clashes": clashes,
        "clashes_unknown": because,
    }


def _clashes(needs: "list[tuple[str, str, str]]") -> "tuple[list[dict[str, str]], str]":
    """What `pip check` would say of these packages: requirements that are not met; and why that can't be told."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        try:
            from pip._vendor.packaging.requirements import Requirement  # type: ignore[assignment]
        except ImportError:
            return [], "this interpreter has neither packaging nor pip (pip install packaging)"
    from importlib import metadata

    found = []
    for name, version, need in needs:
        try:
            wanted = Requirement(need)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            try:
                there = str(metadata.version(wanted.name))
            except metadata.PackageNotFoundError:
                there = ""
            if not there or not wanted.specifier.contains(there, prereleases=True):
                said = f"{wanted.name}{wanted.specifier}"
                found.append({"package": name, "version": version, "needs": said, "found": there})
        except Exception:  # a requirement that nobody can read is no clash
            continue
    return found, ""


def torch() -> "dict[str, Any]":
    """The device that PyTorch would use; none is set up."""
    import warnings

    build = _framework_build()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        import torch

        answer = {"version": torch.__version__, "built_for": build.of_torch(torch), "device": "", "count": 0}
        if torch.cuda.is_available():
            answer.update(device="cuda", count=torch.cuda.device_count())
        elif torch.backends.mps.is_available():
            answer.update(device="mps", count=1)
            most = getattr(torch.mps, "recommended_max_memory", None)  # from 2.5 on
            if most is not None:
                answer["most"] = int(most())
        elif hasattr(torch, "xpu") and torch.xpu.is_available():
            answer.update(device="xpu", count=torch.xpu.device_count())
    answer["said"] = next((str(one.message) for one in said if "CUDA" in str(one.message)), "")
    return answer


def tensorflow() -> "dict[str, Any]":
    """The GPUs that TensorFlow sees; none is set up."""
    build = _framework_build()
    import tensorflow

    gpus = tensorflow.config.list_physical_devices("GPU")
    return {
        "version": tensorflow.__version__,
        "built_for": build.of_tensorflow(tensorflow),
        "device": "gpu" if gpus else "",
        "count": len(gpus),
    }


def _find_ours() -> None:
    """Under a name of its own, as the agent's: another Holter may be installed here."""
    sys.modules["_holter"] = package = type(sys)("_holter")
    package.__path__ = [_ROOT]


def _framework_build() -> Any:
    _find_ours()
    from _holter.facts import framework_build

    return framework_build


def main() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # where memory is short, this goes and no training
    except OSError:
        pass
    try:
        answer = {"packages": packages, "torch": torch, "tensorflow": tensorflow}[sys.argv[1]]()
    except BaseException as error:
        answer = {"failed": f"{type(error).__name__}: {error}"}
    if sys.version_info < (3, 8):  # there the installer's notes can't be read
        answer = {"failed": "it is older than Python 3.9"}
    print("\n" + json.dumps(answer), flush=True)
    os._exit(0)  # what a framework does at its end takes long, and may fail


if __name__ == "__main__":
    main()
