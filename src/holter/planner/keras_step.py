"""A few steps of a saved Keras model in this process, whose peak is then told; started by `plan_keras`."""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any


def _made(numpy: Any, rows: int, shapes: Any) -> Any:
    made = []
    for shape, kind in shapes:
        full_shape = (rows, *shape)
        made.append(numpy.zeros(full_shape, kind) if "int" in kind else numpy.random.rand(*full_shape).astype(kind))
    return made[0] if len(made) == 1 else made


def main() -> None:
    """Train on made-up data of the right shapes."""
    order = json.loads(sys.argv[1])
    import keras
    import numpy

    model = keras.models.load_model(order["path"])
    rows = order["rows"]
    times = []
    for _ in range(order["steps"]):
        x, y = _made(numpy, rows, order["inputs"]), _made(numpy, rows, order["outputs"])
        began = time.perf_counter()
        model.train_on_batch(x, y)
        times.append(time.perf_counter() - began)
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    print(json.dumps({"rows": rows, "peak": peak, "seconds": min(times[1:])}))


if __name__ == "__main__":
    main()
