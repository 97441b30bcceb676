"""Whether this process is one of several ranks that train together: then nothing may be altered in one of them alone.

A batch that one rank splits, an update that it holds back or a state that it goes on from makes the collectives of all
disagree, and a wall for each of them counts the same free memory twice.
"""

import json
import os
import sys

# As torchrun, Lightning, MPI and Slurm set them: how many, and which one this is.
_VARIABLES = (
    ("WORLD_SIZE", "RANK"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)


def ranks():
    """How many ranks there are, and the number of this one."""
    for size, rank in _VARIABLES:
        if _number(size) > 1:
            return _number(size), _number(rank)
    distributed = sys.modules.get("torch.distributed")  # of processes that a script has started by itself
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return _workers()


def _workers():
    """As TensorFlow's strategies know of each other."""
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG") or "{}")
        return max(1, len(cluster["cluster"]["worker"])), int(cluster["task"]["index"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return 1, 0


def _number(name):
    try:
        return int(os.environ.get(name) or 0)
    except ValueError:
        return 0
