"""The tensors within what a model is called with and what it gives: taken out, cut along the batch, put back."""

import copy
import dataclasses


class Unsplittable(Exception):
    """Why a call can't be run in chunks; the words are for the user."""


def take_out(thing, is_tensor, leaves, unknown=None):
    """Append the tensors of `thing` to `leaves`; returns what builds it anew from an iterator over others.

    What is neither a tensor nor a container is given back as it is; `unknown` is a list that takes it down.
    """
    if is_tensor(thing):
        leaves.append(thing)
        return next
    if isinstance(thing, dict):
        parts = [(key, take_out(value, is_tensor, leaves, unknown)) for key, value in thing.items()]
        if thing.__class__ is dict:
            return lambda given: {key: build(given) for key, build in parts}
        return lambda given: _filled(thing, [(key, build(given)) for key, build in parts])
    if isinstance(thing, (list, tuple)):
        builds = [take_out(value, is_tensor, leaves, unknown) for value in thing]
        if hasattr(thing, "_fields"):
            return lambda given: thing.__class__(*[build(given) for build in builds])
        return lambda given: thing.__class__([build(given) for build in builds])
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        names = [one.name for one in dataclasses.fields(thing)]
        named = [(name, take_out(getattr(thing, name), is_tensor, leaves, unknown)) for name in names]
        return lambda given: _replaced(thing, [(name, build(given)) for name, build in named])
    if unknown is not None:
        unknown.append(thing)
    return lambda _given: thing


def elements(things, is_tensor):
    """How many elements the tensors within these have in all: what a call's memory goes by."""
    total = 0
    for thing in things:
        if is_tensor(thing):
            total += thing.numel()
        elif isinstance(thing, dict):
            total += elements(thing.values(), is_tensor)
        elif isinstance(thing, (list, tuple)):
            total += elements(thing, is_tensor)
    return total


def _filled(mapping, pairs):
    new = copy.copy(mapping)
    for key, value in pairs:
        new[key] = value
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
