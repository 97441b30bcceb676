"""Random numbers of a part of a batch as they would have been drawn for the whole of it.

A whole batch draws each dropout mask once, for all samples. A part asks for its own rows of the very same mask: it is
drawn whole, from the state that the generator had at that call, and cut. So the masks, and the state that is left for
what comes after, are those of the run that did not have to split. What draws inside a kernel (attention's own dropout,
a recurrent layer's) can't be cut so; `all_known` then says no, and the split is the same in expectation only.
"""

import functools


def states_of(torch, device):
    """The state of the generators that a call on this device may use."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    elif device.type == "mps":
        states.append(torch.mps.get_rng_state())
    return states


def put_back(torch, device, states):
    """Set the generators to what `states_of` gave."""
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
    elif device.type == "mps":
        torch.mps.set_rng_state(states[1])


def same(torch, one, other):
    """Tell whether two such states are the same."""
    return all(torch.equal(a, b) for a, b in zip(one, other))  # noqa: B905


class Draws:
    """The random calls of one pass over a batch: the generators' state at each, and whether all were known."""

    def __init__(self, torch, device, size, room=None):
        self.torch, self.device, self.size, self.room = torch, device, size, room
        self.masks = {}  # dropout masks by the number of their call, where there is room for them
        self.at = []  # the states before each call, in the order of the calls
        self.end = None  # the state that the whole batch would leave behind
        self.all_known = True

    def part(self, begin, end):
        """A mode under which samples `begin` to `end` draw what is theirs."""
        return _mode_class(self.torch)(self, begin, end)

    def finish(self):
        """After the last part: leave the generators as the whole batch would have."""
        if self.end is not None and self.all_known:
            put_back(self.torch, self.device, self.end)


_KEEP = 0.02  # of the room that is left, for one mask


@functools.lru_cache(maxsize=1)
def _mode_class(torch):
    functional, tensor = torch.nn.functional, torch.Tensor
    # Alpha dropout is no product with a mask: it also shifts.
    masks = {getattr(functional, name) for name in ("dropout", "dropout1d", "dropout2d", "dropout3d")}
    likes = {torch.rand_like, torch.randn_like}
    fresh = {torch.rand, torch.randn}
    inplace = {tensor.normal_, tensor.uniform_, tensor.exponential_}

    class WholeBatchRandom(torch.overrides.TorchFunctionMode):  # type: ignore[name-defined, misc]
        def __init__(self, draws, begin, end):
            super().__init__()
            self.draws, self.begin, self.stop, self.n = draws, begin, end, 0
            self.last = states_of(draws.torch, draws.device)  # how the last draw of ours left the generators

        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            try:
                if func in masks:
                    return self._mask(func, *args, **kwargs)
                if func in likes and not kwargs.get("memory_format"):
                    return self._whole(args[0].shape, lambda shape: func(args[0].new_empty(shape), **kwargs))
                if func in fresh and "generator" not in kwargs:
                    shape = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
                    return self._whole(tuple(shape), lambda shape: func(shape, **kwargs))
                if func in inplace and kwargs.get("generator") is None and not args[0].requires_grad:
                    drawn = self._whole(args[0].shape, lambda s: func(args[0].new_empty(s), *args[1:], **kwargs))
                    return args[0].copy_(drawn)
            except _Otherwise:
                pass
            return func(*args, **kwargs)

        def _mask(self, func, input, p=0.5, training=True, inplace=False):  # noqa: A002
            if not training or p <= 0.0 or p >= 1.0:
                raise _Otherwise
            draws, n = self.draws, self.n
            kept = draws.masks.get(n)
            if kept is not None and kept.shape[0] * (self.stop - self.begin) == input.shape[0] * draws.size:
                self.n += 1
                mask = self._rows(kept, input.shape[0])
            else:
                mask = self._whole(input.shape, lambda shape: self._drawn(func, input, shape, p, n))
            scale = 1.0 / (1.0 - p)
            # The kernel that dropout itself has for its backward: one pass, and only the mask is kept.
            return (
                input.mul_(mask).mul_(scale) if inplace else torch.ops.aten.native_dropout_backward(input, mask, scale)
            )

        def _drawn(self, func, input, shape, p, n):  # noqa: A002
            """A mask for the whole batch, kept for the other parts: a plain step keeps it, too."""
            mask = func(input.detach().new_ones(shape), p, True) != 0
            room = self.draws.room
            if room is None or mask.numel() < _KEEP * room.left():
                self.draws.masks[n] = mask
            return mask

        def _rows(self, whole, rows):
            each = rows // (self.stop - self.begin)
            return whole.narrow(0, self.begin * each, rows)

        def _whole(self, shape, draw):
            """Draw for all samples, and give the rows of this part."""
            rows, size, draws = self.stop - self.begin, self.draws.size, self.draws
            if not shape or shape[0] % rows:
                raise _Otherwise
            each = shape[0] // rows
            self._look()
            if self.n < len(draws.at):
                put_back(draws.torch, draws.device, draws.at[self.n])
            else:
                draws.at.append(states_of(draws.torch, draws.device))
            self.n += 1
            drawn = draw((size * each, *shape[1:]))
            self.last = states_of(draws.torch, draws.device)
            return drawn.narrow(0, self.begin * each, rows * each)

        def _look(self):
            """Somebody else's draw since the last of ours is one that could not be cut."""
            now = states_of(self.draws.torch, self.draws.device)
            if not same(self.draws.torch, now, self.last):
                self.draws.all_known = False

        def done(self):
            """The part has been run: was every draw one of ours, and as many as in the other parts?"""
            self._look()
            draws = self.draws
            if self.n != len(draws.at):
                draws.all_known = False
            if draws.end is None:
                draws.end = self.last

    return WholeBatchRandom


class _Otherwise(Exception):
    """Not a draw that can be cut: do as ever."""
