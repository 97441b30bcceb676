"""The tensors within what a model is called with and what it gives: taken out, cut along the batch, put back."""

import copy
import dataclasses

_DEEPEST = 50  # containers within containers


class Unsplittable(Exception):
    """Why a call can't be run in chunks; the words are for the user."""


def take_out(thing, is_tensor, leaves, unknown=None, depth=0):
    """Append the tensors of `thing` to `leaves`; returns what builds it anew from an iterator over others.

    What is neither a tensor nor a container is given back as it is; `unknown` is a list that takes it down. Containers
    are read as Python's own kinds: what a class of the user's makes of being asked is its own affair.
    """
    if is_tensor(thing):
        leaves.append(thing)
        return next
    # A list may hold itself.
    kind = type(thing) if depth < _DEEPEST else type(None)
    if issubclass(kind, dict):
        parts = [(key, take_out(value, is_tensor, leaves, unknown, depth + 1)) for key, value in dict.items(thing)]
        if thing.__class__ is dict:
            return lambda given: {key: build(given) for key, build in parts}
        beside = [value for value in vars(thing).values() if is_tensor(value)] if hasattr(thing, "__dict__") else ()
        if unknown is not None and {*map(id, beside)} - {*map(id, dict.values(thing))}:
            unknown.append(thing)  # it holds tensors that are none of its entries
        return lambda given: _filled(thing, [(key, build(given)) for key, build in parts])
    if issubclass(kind, (list, tuple)):
        builds, make = (
            [take_out(value, is_tensor, leaves, unknown, depth + 1) for value in _entries(thing)],
            thing.__class__,
        )
        if hasattr(thing, "_fields"):
            return lambda given: make(*[build(given) for build in builds])
        return lambda given: make([build(given) for build in builds])
    if dataclasses.is_dataclass(kind):
        names = [one.name for one in dataclasses.fields(kind)]
        held = [(name, object.__getattribute__(thing, name)) for name in names]
        named = [(name, take_out(value, is_tensor, leaves, unknown, depth + 1)) for name, value in held]
        return lambda given: _replaced(thing, [(name, build(given)) for name, build in named])
    if unknown is not None:
        unknown.append(thing)
    return lambda _given: thing


def elements(things, is_tensor, depth=0):
    """How many elements the tensors within these have in all: what a call's memory goes by."""
    total = 0
    for thing in things if depth < _DEEPEST else ():
        if is_tensor(thing):
            total += thing.numel()
        elif issubclass(type(thing), dict):
            total += elements(dict.values(thing), is_tensor, depth + 1)
        elif issubclass(type(thing), (list, tuple)):
            total += elements(_entries(thing), is_tensor, depth + 1)
    return total


def _entries(thing):
    return list.__iter__(thing) if issubclass(type(thing), list) else tuple.__iter__(thing)


def _filled(mapping, pairs):
    new = copy.copy(mapping)
    before = {id(dict.get(mapping, key)): value for key, value in pairs}
    for key, value in pairs:
        new[key] = value
    for name, value in list(getattr(new, "__dict__", {}).items()):
        if id(value) in before:  # an entry that is an attribute, too
            object.__setattr__(new, name, before[id(value)])
    return new


def _replaced(record, pairs):
    new = copy.copy(record)
    for name, value in pairs:
        object.__setattr__(new, name, value)
    return new


def batch_of(leaves, axis):
    """The size of the batch, by the first tensor that has such an axis; 0 where none has."""
    for tensor in leaves:
        if tensor.dim() > axis:
            return tensor.shape[axis]
    return 0


def batch_axes(leaves, size, axis):
    """Along which axis each tensor holds the samples; None for those that all samples share."""
    order = (axis, 1 - axis)
    return [next((d for d in order if tensor.dim() > d and tensor.shape[d] == size), None) for tensor in leaves]


def bytes_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def rows_of(tensor, axis, begin, end):
    """The part of a tensor that belongs to some samples."""
    return tensor if axis is None else tensor.narrow(axis, begin, end - begin)
