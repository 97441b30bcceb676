"""What the names of a file's imports refer to, with the many addresses of one thing brought to one."""

from __future__ import annotations

import ast
import re

# The same thing under several addresses; the first that fits is replaced.
_SAME = (
    (re.compile(r"^tensorflow\.(?:compat\.v[12]\.|python\.)?keras\."), "keras."),
    (re.compile(r"^tf_keras\."), "keras."),
    (re.compile(r"^keras\.(?:api|src)\."), "keras."),
    (re.compile(r"^tensorflow\.compat\.v2\."), "tensorflow."),
    (re.compile(r"^lightning\.(?:pytorch|fabric)\."), "lightning."),
    (re.compile(r"^(?:pytorch_lightning|lightning_fabric|lightning\.pytorch)(?=\.)"), "lightning"),
    (re.compile(r"^torch\.utils\.data\.(?:dataloader|dataset)\."), "torch.utils.data."),
    (re.compile(r"^torch\.optim\.(?:adam|adamw|sgd|rmsprop)\."), "torch.optim."),
    (re.compile(r"^torch\.(?:cuda|cpu)\.amp\.(?:autocast_mode|grad_scaler)\."), "torch.cuda.amp."),
    (re.compile(r"^torch\.amp\.(?:autocast_mode|grad_scaler)\."), "torch.amp."),
    (re.compile(r"^torch\.autograd\.grad_mode\."), "torch."),
    (re.compile(r"^torch\.autograd\.(?=no_grad|inference_mode|set_grad_enabled)"), "torch."),
    (re.compile(r"^jax\._src\.api\."), "jax."),
    (re.compile(r"^accelerate\.utils(?:\.memory)?\."), "accelerate."),
)


class Imports:
    """Local name -> the dotted name that it was imported from."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.modules: set[str] = set()
        self.where: dict[str, list[ast.Import | ast.ImportFrom]] = {}

    def note(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                local = alias.asname or alias.name.partition(".")[0]
                full = alias.name if alias.asname else local
                self.modules.add(alias.name)
            else:
                if node.level or node.module is None:
                    continue
                local, full = alias.asname or alias.name, f"{node.module}.{alias.name}"
                self.modules.add(node.module)
            self.names[local] = full
            self.where.setdefault(local, []).append(node)

    def knows(self, local: str) -> bool:
        return local in self.names

    def resolve(self, name: str) -> str:
        first, dot, rest = name.partition(".")
        full = self.names[first] + dot + rest
        for pattern, same in _SAME:
            full = pattern.sub(same, full, count=1)
        return full

    def uses(self, *tops: str) -> bool:
        """Whether the file imports any of these packages."""
        return any(module.partition(".")[0] in tops for module in self.modules)
