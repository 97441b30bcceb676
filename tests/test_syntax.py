"""Users' code is read by the threads of `holter serve`, and by whoever else asks."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

from holter.source.syntax import parse

NESTED = "\n".join(f"x{n} = ((((({n} + 1) * 2) - 3) / 4) ** 5)" for n in range(300))


class Slow:
    """What the collector ends in the middle of a tree, in Python, so that another thread may go on."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        for _ in range(200):
            pass


def test_trees_are_made_in_many_threads_at_once():
    """Python 3.11 fails where one thread's tree is begun inside another's."""

    def read(number):
        for _ in range(20):
            Slow()
            assert len(parse(NESTED).body) == 300
        return number

    every, pace = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(10)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(read, range(6))) == list(range(6))
    finally:
        gc.set_threshold(*every)
        sys.setswitchinterval(pace)
