"""What a rank that has begun nothing for some seconds tells the others, through the store that the job has already.

So that the record of each machine knows where the ranks of the others stand. Under a kilobyte each, over a connection
of its own, from a thread of ours: nothing of the job waits for it. What comes back is data, and nothing is made of it
but plain values.
"""

import json
import os
import socket
import time
from datetime import timedelta

_PATIENCE_S = 5.0
_OTHERS_WRITE_S = 1.5  # seconds in which the others, who fell silent at about the same time, have written theirs
_LONGEST_BYTES = 2048
_MOST_READ = 1024  # ranks


class Bulletins:
    """Writes this rank's place, and reads those of the others on one rank of each machine."""

    def __init__(self, distributed, rank, world):
        self.distributed = distributed
        self.rank = rank
        self.world = world
        self.store = None
        self.restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        # Where all ranks run here, their records are one already.
        self.needed = os.environ.get("LOCAL_WORLD_SIZE") != str(world)
        self.reads = os.environ.get("LOCAL_RANK", "0") == "0"

    def write(self, **place):
        """Tell where this rank stands; of one that goes on again nothing but that."""
        if self.needed:
            told = json.dumps(dict(place, rank=self.rank, host=socket.gethostname()), default=str)
            self._connect().set(self._key(self.rank), told[:_LONGEST_BYTES])

    def read(self):
        """The places of the others, and the ranks that have told none."""
        if not self.needed or not self.reads:
            return None
        time.sleep(_OTHERS_WRITE_S)
        store, found, silent = self._connect(), [], []
        for rank in range(min(self.world, _MOST_READ)):
            if rank == self.rank:
                continue
            key = self._key(rank)
            place = _parsed(store.get(key)) if store.check([key]) else None
            if place is not None and place.get("rank") == rank:
                found.append(place)
            else:
                silent.append(rank)
        return found, silent

    def _connect(self):
        if self.store is None:
            distributed = self.distributed
            store = distributed.distributed_c10d._get_default_store()
            if hasattr(store, "clone"):
                store = store.clone()
            else:
                address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
                store = distributed.TCPStore(*address, None, False, timeout=timedelta(seconds=_PATIENCE_S))
            store.set_timeout(timedelta(seconds=_PATIENCE_S))
            self.store = distributed.PrefixStore("holter", store)
        return self.store

    def _key(self, rank):
        return "%s/%d" % (self.restart, rank)


def _parsed(raw):
    """A bulletin as a dict of plain values; None for what is none."""
    try:
        found = json.loads(raw[:_LONGEST_BYTES])
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    plain = {str(name)[:20]: value for name, value in list(found.items())[:20]}
    return {name: value for name, value in plain.items() if isinstance(value, (str, int, float, bool)) or value is None}
