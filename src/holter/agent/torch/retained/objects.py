"""What PyTorch's own things hold: storages, parameters and the graph behind a tensor, without making a device wait.

What a graph has saved for backward is looked at through `SavedTensor.data`, which unpacks nothing and calls no hook;
releases without it tell how many nodes there are and no more.
"""

import functools
import sys
from collections import deque

from ...observe.wrap import drop_own_frame
from ..observe.visibility import buffers_of, named_modules_of, weights_of

_REACH = 500  # nodes of the graph behind one variable
_SPINE, _LONGEST_SPINE = 4000, 64000  # and of the chain along its first or last edges
_VARIABLES = 12  # with a graph, in one census
_NODE_BYTES = 500
_PARAMETERS = 400
_MODULES = 200


class TorchKinds:
    """Weighs tensors, modules and optimizers for the census."""

    def __init__(self, torch):
        self.torch = torch
        self.tensor = torch.Tensor
        self.module = torch.nn.Module
        self.optimizer = torch.optim.Optimizer
        self.spine, self.cut_short = _SPINE, False
        self.saved_names = {}  # names of the attributes with saved tensors, by the name of a node's type

    def quiet(self):
        """Makes attributes of tensor subclasses plain attributes, for the time of a census."""
        if self.cut_short:  # a chain was longer than the last census went: go further, to see whether it grows
            self.spine, self.cut_short = min(2 * self.spine, _LONGEST_SPINE), False
        return self.torch._C.DisableTorchFunction()

    def weigh(self, load, thing, _cls, nodes):
        if isinstance(thing, self.tensor):
            self._tensor(load, thing, nodes)
            return True
        if isinstance(thing, self.module):
            for n, parameter in enumerate(_parameters(thing)):
                if n >= _PARAMETERS:
                    break
                self._storage(load, parameter, "model")
                if parameter.is_leaf and parameter.grad is not None:
                    self._storage(load, parameter.grad, "model")
            load.add(5000, "model")
            return True
        if isinstance(thing, self.optimizer):
            load.add(2000, "optimizer")
            for state in list(thing.state.values())[:_PARAMETERS]:
                for value in state.values() if isinstance(state, dict) else ():
                    if isinstance(value, self.tensor):
                        self._storage(load, value, "optimizer")
            return True
        return False

    def _tensor(self, load, tensor, most):
        load.add(300, "tensor")
        if load.shape is None:
            load.shape = list(tensor.shape)[:6]
        self._storage(load, tensor, "tensor")
        node = tensor.grad_fn
        if node is None:
            return
        load.graph = True
        seen = load.seen
        if node in seen or len(seen) >= most:
            return  # of one element's graphs so many nodes are looked at in all: a loss beside an output may be spent
        load.walked = True
        before = len(seen)
        seen.add(node)
        queue = deque((node,))
        while queue and len(seen) < most:
            node = queue.popleft()
            self._saved_by(load, node)
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    queue.append(following)
        load.nodes = len(seen)
        load.add(_NODE_BYTES * (len(seen) - before), "graph")

    def _saved_by(self, load, node):
        cls = type(node)
        names = self.saved_names.get(cls.__name__)
        if names is None:
            names = [name for name in dir(cls) if name.startswith("_raw_saved_")]
            if len(self.saved_names) < 1000:
                self.saved_names[cls.__name__] = names
        for name in names:
            try:
                saved = getattr(node, name)
                for one in saved if isinstance(saved, (tuple, list)) else (saved,):
                    data = getattr(one, "data", None)
                    if isinstance(data, self.tensor):
                        self._storage(load, data, "saved")
            except Exception:
                continue

    def _storage(self, load, tensor, kind):
        try:
            storage = tensor.untyped_storage()
            pointer, size = storage.data_ptr(), storage.nbytes()
        except Exception:
            pointer, size = id(tensor), tensor.numel() * tensor.element_size()
        if not pointer or not size:
            return
        on_host = tensor.is_cpu
        load.block(("t", pointer), size if on_host else 0, 0 if on_host else size, kind)

    def visit(self, walk, thing, _cls, spot, depth):
        if isinstance(thing, self.tensor):
            self._variable(walk, thing, spot)
            return True
        if isinstance(thing, self.module):
            self._module(walk, thing, spot, depth)
            return False
        return False

    def _variable(self, walk, tensor, spot):
        """A tensor by a name of its own: it grows when it is joined to itself, its graph when it is never cut off."""
        node = tensor.grad_fn
        if node is not None:
            walk.graphs += 1
            if walk.graphs > _VARIABLES:
                return
        walk.weigher.nodes = 60
        load = walk.weigher.load(tensor)
        estimate = walk.weigher.estimate([load], 1, [tensor])
        nodes = self._reach(node) if node is not None else 0
        if nodes and estimate.nodes and nodes > estimate.nodes:
            estimate.host = int(estimate.host * nodes / estimate.nodes)
            estimate.device = int(estimate.device * nodes / estimate.nodes)
        if nodes or estimate.host + estimate.device >= 65536:
            address = tensor.data_ptr() if tensor.is_cpu and tensor.is_contiguous() else 0
            walk.note_array(tensor, spot, estimate, tensor.numel(), address, nodes)

    def _reach(self, node):
        """How far a graph goes: nodes in reach, and where there are many the chain along first or last edges, too."""
        queue, seen = deque((node,)), {node}
        while queue and len(seen) < _REACH:
            for following, _ in queue.popleft().next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    queue.append(following)
        if len(seen) < _REACH:
            return len(seen)
        longest = 0
        for end in (0, -1):
            length, here = 0, node
            while here is not None and length < self.spine:
                length += 1
                edges = [following for following, _ in here.next_functions if following is not None]
                here = edges[end] if edges else None
            longest = max(longest, length)
        self.cut_short = self.cut_short or longest >= self.spine
        return _REACH + longest

    def _module(self, walk, module, spot, depth):
        """Hooks of the parts of a model: what they hold on to hangs on no variable."""
        from ...retained.walk import is_user_class

        if spot.foreign or depth > 6:
            return
        for n, (name, part) in enumerate(list(named_modules_of(module))):
            if n >= _MODULES:
                break
            held = part.__dict__
            for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
                for hook in list((held.get(hooks) or {}).values()):
                    walk.push(hook, spot.element(name), depth + 1)
            if part is not module and is_user_class(type(part)):
                walk.push(part, spot.element(name), depth + 1)


def _parameters(module):
    yield from weights_of(module)
    yield from buffers_of(module)


def join(agent, torch):
    """Let the census of this process know PyTorch's own things."""
    agent.retained.kinds.append(TorchKinds(torch))
    agent.retained.on_device = device_bytes(torch)
    agent.guard(_patch_workers)(agent, torch.utils.data._utils.worker)


def _patch_workers(agent, worker):
    inner = worker._worker_loop

    @functools.wraps(inner)
    def _worker_loop(*args, **kwargs):
        agent.guard(agent.greet)("worker")
        agent.guard(_watch_worker)(agent)
        return inner(*args, **kwargs)

    worker._worker_loop = _worker_loop


def _watch_worker(agent):
    """In a worker: look at own memory between two batches, starting from the dataset."""
    fetchers = sys.modules["torch.utils.data._utils.fetch"]
    retained = agent.retained
    batches = 0

    for cls in (fetchers._MapDatasetFetcher, fetchers._IterableDatasetFetcher):
        inner = vars(cls)["fetch"]

        @functools.wraps(inner)
        def fetch(fetcher, indexes, inner=inner):
            nonlocal batches
            if not batches:
                retained.begin(fetcher.dataset, _first_worker())
            try:
                batch = inner(fetcher, indexes)
            except BaseException as error:
                drop_own_frame(error)
                raise
            batches += 1
            retained.tick(batches, fetcher.dataset)
            return batch

        cls.fetch = fetch


def _first_worker():
    info = getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)
    return getattr(info, "id", 0) == 0


def device_bytes(torch):
    """Gives the bytes that PyTorch has allocated on its devices, without waking one up."""

    def read():
        total = 0
        if torch.cuda.is_initialized():
            for index in range(min(torch.cuda.device_count(), 8)):
                total += torch.cuda.memory_allocated(index)
        mps = getattr(torch, "mps", None)
        if mps is not None and torch.backends.mps.is_available():
            total += mps.current_allocated_memory()
        return total

    return read
