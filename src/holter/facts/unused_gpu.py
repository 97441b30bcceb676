"""Why a framework can't use the GPU that is there: the interpreter, the build, a variable or the driver."""

import re
from typing import Literal, NamedTuple, Optional

NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
_HIDDEN = ("", "-1", "none", "NoDevFiles")


_Cure = tuple[str, str, Literal["exact", "equivalent"]]


class Reason(NamedTuple):
    """The fact in words; the cures, each as title, what to type, and what it does to the result."""

    words: str
    cures: "tuple[_Cure, ...]"


def reason_of(
    framework: str, version: str, built_for: str, *, translated: Optional[bool], visible: Optional[str], driver: str
) -> Optional[Reason]:
    """`visible` is the value of CUDA_VISIBLE_DEVICES, `driver` the newest CUDA that the driver runs."""
    name = NAMES.get(framework, framework)
    if translated:
        cure: _Cure = ("install Python and its packages for arm64", "arch -arm64 python3 -m venv .venv", "equivalent")
        return Reason("this Python was made for Intel and runs translated, without the GPU", (cure,))
    if built_for == "cpu":
        install = "torch" if framework == "torch" else "'tensorflow[and-cuda]'"
        how = f"pip install --force-reinstall {install}"
        return Reason(f"{name} {version} is built without GPUs", (("install the build for GPUs", how, "equivalent"),))
    if visible is not None and visible.strip() in _HIDDEN:
        words = f"CUDA_VISIBLE_DEVICES is set to {visible!r}, which hides every GPU"
        return Reason(words, (("unset it", "unset CUDA_VISIBLE_DEVICES", "equivalent"),))
    wanted = re.match(r"cuda (\d+)", built_for)
    # Those of an older generation than the build do not mix with it.
    if wanted and driver and int(driver.split(".")[0]) < int(wanted[1]):
        cures: tuple[_Cure, ...] = (
            ("install a newer driver for the GPU", "nvidia-smi  # shows which one is there", "exact"),
            (f"or a build of {name} for CUDA {driver}", "", "equivalent"),
        )
        return Reason(f"{name} is built for {built_for.upper()}, and the driver runs CUDA {driver} at most", cures)
    return None
