"""Whether NumPy arrays, and what gives one without a copy or a wait, are finite: in pieces, for a bounded time."""

import sys
from math import inf

from .loss_history import short

_PIECE = 1 << 20
_OUTLIER = 1e4
_MAX_ELEMENTS = 1 << 26


def as_array(value):
    """The NumPy array behind a tensor, a variable or a data frame; None for what is none or lies on a device."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.ndarray):
        return value
    inner = getattr(value, "_value", None)  # a variable of Keras's
    value = inner if inner is not None and not callable(inner) else value
    if hasattr(value, "detach"):
        value = value.detach()
        if not value.is_cpu:
            return None
    kind = type(value).__name__
    if kind in ("DataFrame", "Series") and getattr(value, "size", _MAX_ELEMENTS) < _MAX_ELEMENTS:
        return value.to_numpy()
    read = getattr(value, "_numpy", None) or getattr(value, "numpy", None)
    try:
        found = read() if read is not None else None
    except Exception:
        return None
    return numpy.asarray(found) if isinstance(found, (numpy.ndarray, numpy.generic)) else None


def describe(name, array, clock):
    """One array as fields of an event; `row` is the first bad sample of all that it holds."""
    numpy = sys.modules["numpy"]
    if array.dtype.kind not in "fc" and array.dtype.name != "bfloat16":
        return None
    fields = {"name": name, "dtype": array.dtype.name, "max": 0.0, "of": len(array) if array.ndim else 1}
    rows = array.reshape(fields["of"], -1) if array.ndim and array.size and array.size <= _MAX_ELEMENTS else None
    if rows is None:
        return None
    step = max(1, _PIECE // max(rows.shape[1], 1))
    worst = usual = None
    with numpy.errstate(all="ignore"):
        for begin in range(0, len(rows), step):
            if clock.over():
                fields["cut"] = True
                break
            piece = rows[begin : begin + step]
            fine = numpy.isfinite(piece)
            if not fine.all():
                if "row" not in fields:
                    wrong = numpy.flatnonzero(~fine.all(1))
                    fields.update(row=begin + int(wrong[0]), bad="nan" if numpy.isnan(piece[wrong]).any() else "inf")
                    columns = numpy.flatnonzero((~fine).all(0))
                    if array.ndim == 2 and len(piece) > 1 and 0 < len(columns) < piece.shape[1]:
                        fields["feature"] = int(columns[0])
                fields["samples"] = fields.get("samples", 0) + int((~fine.all(1)).sum())
                piece = numpy.where(fine, piece, 0)
            sizes = numpy.abs(piece).max(1).astype("float64")
            top = int(sizes.argmax())
            if sizes[top] > fields["max"]:
                fields["max"], worst = float(sizes[top]), begin + top
            usual = min(inf if usual is None else usual, float(numpy.median(sizes)))
    if "bad" not in fields and usual is not None and fields["of"] >= 8 and fields["max"] > _OUTLIER * max(usual, 1e-3):
        fields.update(bad="outlier", row=worst, usual=short(usual))
    fields["max"] = short(fields["max"])
    return fields


def of_named(named, clock):
    """Weights together: how many are not finite, the first of them, the largest magnitude."""
    fields: dict = {"bad": 0, "of": 0, "max": 0.0, "dtype": ""}
    for name, value in named:
        if clock.over():
            fields["cut"] = True
            break
        array = as_array(value)
        if array is None or array.dtype.kind not in "fc" or not array.size:
            continue
        numpy = sys.modules["numpy"]  # it is there: it has made the array
        fields["of"] += 1
        fields["dtype"] = fields["dtype"] or array.dtype.name
        with numpy.errstate(all="ignore"):
            fine = numpy.isfinite(array)
            if not fine.all():
                fields["bad"] += 1
                fields.setdefault("first", name)
                fields["last"] = name
                array = array[fine]
            if array.size:
                fields["max"] = max(fields["max"], float(numpy.abs(array).max()))
    fields["max"] = short(fields["max"])
    return fields if fields["of"] else {}
