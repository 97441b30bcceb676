"""Which GPUs a framework's build knows; no device is asked."""

from typing import Any


def of_torch(torch: Any) -> str:
    """Of PyTorch: `cuda 12.8`, `rocm 6.3`, `xpu 2025`, `mps` or `cpu`."""
    version = torch.version
    for name, key in (("cuda", "cuda"), ("rocm", "hip"), ("xpu", "xpu")):
        if getattr(version, key, None):
            return f"{name} {getattr(version, key)}"
    return "mps" if torch.backends.mps.is_built() else "cpu"


def of_tensorflow(tensorflow: Any) -> str:
    """Of TensorFlow: `cuda 12.5.1`, `rocm` or `cpu`."""
    build = tensorflow.sysconfig.get_build_info()
    if build.get("is_rocm_build"):
        return "rocm"
    return f"cuda {build.get('cuda_version', '')}" if build.get("is_cuda_build") else "cpu"
