"""Parts that a restart has asked for in the environment, from the first step on."""

import os


def parts_asked(name):
    """The number in this variable; 1 where there is none."""
    try:
        return max(1, int(os.environ.get(name, 1)))
    except ValueError:
        return 1
