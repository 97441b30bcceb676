"""What a control group holds that the kernel can't take back at once."""


def kept(usage: float, cached: float, shared: float) -> float:
    """Bytes in use without the page cache, which is dropped on demand; shared memory counts as cache, and is not."""
    return max(0.0, usage - cached + min(cached, shared))
