"""What a planner is at: a line of JSON for each stage, in a file beside the plan that is read along."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

PROGRESS = "plan.progress"

Tell = Callable[..., None]


def quiet(stage: str, **figures: Any) -> None:
    """For whoever waits for the plan alone."""


def teller(folder: str) -> Tell:
    """A function that adds a stage to the file; where that can't be written the plan is made all the same."""

    def tell(stage: str, **figures: Any) -> None:
        try:
            with open(os.path.join(folder, PROGRESS), "a") as file:
                file.write(json.dumps({"stage": stage, **figures}) + "\n")
        except OSError:
            pass

    return tell
