"""PyTorch's Flight Recorder, as far as we need it: the last collectives of this rank, by group and number.

gloo and NCCL fill it where `TORCH_FR_BUFFER_SIZE` is set, which `holter run` does. Reading some 250 entries takes 2 ms,
so it is read on suspicion and now and then, never at a step. On gloo only `retired` tells what has been completed.
"""

import json
import sys

_MOST_SIZES = 4  # shapes of one collective that are told


def read():
    """All entries that it holds, oldest first; none where this PyTorch has no Flight Recorder or it is off."""
    native = sys.modules.get("torch._C._distributed_c10d")
    # Older releases have it for NCCL alone.
    dump = getattr(native, "_dump_fr_trace_json", None) or getattr(native, "_dump_nccl_trace_json", None)
    if dump is None:
        return []
    entries = json.loads(dump()).get("entries") or []
    return [entry for entry in entries if not entry.get("is_p2p")]


def told(entry):
    """One entry as a row of a record."""
    return {
        "group": group_of(entry),
        "number": entry.get("collective_seq_id"),
        "op": str(entry.get("profiling_name", "")).rpartition(":")[2],
        "sizes": str((entry.get("input_sizes") or [])[:_MOST_SIZES])[:200],
        "dtype": ", ".join(map(str, (entry.get("input_dtypes") or [])[:1])),
        "done": bool(entry.get("retired")) or entry.get("state") == "completed",
    }


def group_of(entry):
    """The name by which all ranks know the entry's group."""
    known = entry.get("process_group") or ["0"]
    return str(known[0])
