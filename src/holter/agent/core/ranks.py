"""Whether this process is one of several ranks that train together: then nothing may be altered in one of them alone.

A batch that one rank splits, an update that it holds back or a state that it goes on from makes the collectives of all
disagree, and a wall for each of them counts the same free memory twice.
"""

import os
import sys

from ...facts.job import ranks_in


def ranks():
    """How many ranks there are, and the number of this one."""
    several, rank = ranks_in(os.environ)
    if several > 1:
        return several, rank
    distributed = sys.modules.get("torch.distributed")  # of processes that a script has started by itself
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0
