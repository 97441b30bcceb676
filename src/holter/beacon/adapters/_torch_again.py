"""From the batch to the loss once more: which statements of the user's to run, with what, and whether they may be."""

import sys

from ..user_frame import is_user_file
from . import _loss_slice
from ._torch_replay import Replay

_BATCH = 1 << 24  # elements of a batch that may be copied
_TOO_LARGE = object()


class Again:
    """Finds the operation at which numbers stop being numbers, by a second pass of the same step."""

    def __init__(self, torch, batch):
        self.torch = torch
        self.batch = batch

    def first_bad(self, what, frame, clock):
        """Fields of the operation, from the loop's own statements or at least from the model; {} where none shows."""
        while frame is not None and not is_user_file(frame.f_code.co_filename):
            frame = frame.f_back
        models = list(dict.fromkeys(self.batch.models()))
        calls = self.batch.calls
        for act, called in self._acts(frame):
            replay = Replay(self.torch, [*models, *(m for m in called if all(m is not n for n in models))], clock)
            run = act(replay)
            if run is None:
                continue
            found = replay.run(run, what == "gradient", calls[-1][3] if calls else None)
            if found.get("function") == "<module>" and frame.f_code.co_firstlineno <= found.get("line", 0):
                found["function"] = frame.f_code.co_name  # the statements were taken out of their function
            if found:
                return found
        return {}

    def _acts(self, frame):
        if frame is not None:
            yield from self._of_frame(frame)
        if self.batch.calls:
            yield self._of_model, ()

    def _of_frame(self, frame):
        env = dict(frame.f_globals)
        held = frame.f_locals
        env.update(held)
        if sys.version_info < (3, 13) and frame.f_code.co_flags & 1:
            held.clear()  # see `read_locals`

        def needs_again(name):
            return _has_grad(self.torch, env.get(name))

        wanted = _loss_slice.backward_name(frame) or {name for name, v in env.items() if is_bad_loss(self.torch, v)}
        statements = _loss_slice.of_frame(frame, wanted, needs_again)
        if not statements:
            return
        used = _loss_slice.names_in(statements)
        called = [env[name] for name in used if isinstance(env.get(name), self.torch.nn.Module)]

        def act(replay):
            if not replay.purity.statements(statements, env):
                return None
            copied = {name: _copy(self.torch, env[name]) for name in used if name in env}
            if any(value is _TOO_LARGE for value in copied.values()):
                return None
            code = _loss_slice.compiled(statements, frame.f_code.co_filename)
            return lambda: exec(code, {**env, **copied})

        yield act, called

    def _of_model(self, replay):
        ref, refs, positional, _state = self.batch.calls[-1]
        model = ref()
        if model is None or not replay.may_call(model):
            return None
        values = [(name, tensor()) for name, tensor in refs]
        if any(value is None or (isinstance(name, str) and "[" in name) for name, value in values):
            return None
        copies = [(name, _copy(self.torch, value)) for name, value in values]
        args = [value for name, value in copies if isinstance(name, int)]
        if len(args) != positional or any(value is _TOO_LARGE for _, value in copies):
            return None
        return lambda: model(*args, **{name: value for name, value in copies if isinstance(name, str)})


def is_bad_loss(torch, value):
    """True for one number on the CPU that was computed through a graph and is no number."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad or value.grad_fn is None:
        return False
    return value.is_cpu and value.numel() == 1 and not bool(torch.isfinite(value.detach()).all())


def _copy(torch, value):
    """A copy of a batch, so that what is done to it in place is not done to the user's."""
    if isinstance(value, torch.nn.Parameter):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.numel() <= _BATCH else _TOO_LARGE
    if type(value) in (tuple, list):
        copies = [_copy(torch, one) for one in value]
        return _TOO_LARGE if any(one is _TOO_LARGE for one in copies) else type(value)(copies)
    if type(value) is dict:
        copies = {key: _copy(torch, one) for key, one in value.items()}
        return _TOO_LARGE if any(one is _TOO_LARGE for one in copies.values()) else copies
    return value


def _has_grad(torch, value):
    if isinstance(value, torch.Tensor):
        return value.requires_grad and not value.is_leaf
    if isinstance(value, (tuple, list)):
        return any(_has_grad(torch, one) for one in value[:8])
    if isinstance(value, dict):
        return any(_has_grad(torch, one) for one in list(value.values())[:8])
    return False
