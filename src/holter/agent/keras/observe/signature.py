"""What a `tf.function` was traced or called for: its arguments as flat rows, and what differs between two of them."""

from ...observe.retraces import CLOSURE, SCALAR, SHAPE, shortened

_MAX_ARGUMENTS = 64  # leaves of one signature that are looked at


def signature_of(function_type):
    """Each leaf of the arguments as (name, kind, value), where the value is short text or a number."""
    leaves = []
    for name, parameter in function_type.parameters.items():
        _flatten(name, parameter.type_constraint, leaves)
        if len(leaves) >= _MAX_ARGUMENTS:
            break
    return tuple(leaves)


def _flatten(name, trace_type, leaves):
    if len(leaves) >= _MAX_ARGUMENTS:
        return
    kind = type(trace_type).__name__
    members = _members(kind, trace_type)
    if members is not None:
        for member_name, member in members:
            _flatten("%s%s" % (name, member_name), member, leaves)
    elif kind == "Literal":
        value = trace_type.value
        # NumPy's numbers and enumerations come as themselves; what matters is that they are no tensors.
        leaves.append((name, SCALAR, shortened(value)))
    elif hasattr(trace_type, "shape") and hasattr(trace_type, "dtype"):
        leaves.append((name, SHAPE, "%s %s" % (_shape(trace_type.shape), trace_type.dtype.name)))
    elif kind == "Weakref":
        leaves.append((name, CLOSURE, "%s #%x" % (_referred(trace_type), hash(trace_type) & 0xFFFFFF)))
    else:
        leaves.append((name, "other", "%s #%x" % (kind, hash(trace_type) & 0xFFFFFF)))


def _members(kind, trace_type):
    """What a container holds, by name; None for what is none."""
    if kind == "Tuple":
        return [("[%d]" % n, one) for n, one in enumerate(trace_type.components)]
    if kind == "List":
        return [("[%d]" % n, one) for n, one in enumerate(trace_type.components_tuple.components)]
    if kind == "Dict":
        return [("[%r]" % key, one) for key, one in trace_type.mapping.items()]
    if kind in ("NamedTuple", "Attrs"):
        named = getattr(trace_type, "named_attributes", trace_type)
        values = named.attributes.components
        return [("." + key, values[n]) for n, key in enumerate(named.attribute_names[: len(values)])]
    element = getattr(trace_type, "element_spec", None)  # a dataset or its iterator
    if element is not None:
        rows = element if isinstance(element, (tuple, list)) else [element]
        return [("[%d]" % n, one) for n, one in enumerate(rows)]
    return None


def _shape(shape):
    if shape.rank is None:
        return "(unknown)"
    return "(%s)" % ", ".join("None" if size is None else str(size) for size in shape.as_list())


def _referred(trace_type):
    thing = trace_type._ref()
    return "an object" if thing is None else type(thing).__name__


def shapes_of(args, kwargs):
    """The shapes of all tensors and arrays in a call, in their order."""
    found = []
    _gather(args, found)
    if kwargs:
        _gather(kwargs, found)
    return tuple(found)


def _gather(thing, found):
    if isinstance(thing, (tuple, list)):
        for one in thing[:_MAX_ARGUMENTS]:
            _gather(one, found)
    elif isinstance(thing, dict):
        for one in thing.values():
            _gather(one, found)
    elif len(found) < _MAX_ARGUMENTS:
        at_once = getattr(thing, "_shape_tuple", None)  # TensorFlow's own, without an object of its shapes
        if at_once is not None:
            found.append(at_once())
        elif _is_array(thing):
            found.append(tuple(thing.shape))


def _is_array(thing):
    shape = getattr(thing, "shape", None)
    return shape is not None and hasattr(thing, "dtype") and getattr(shape, "rank", 0) is not None


def shapes_named(function, args, kwargs):
    """The same as rows of a signature, by the names of the function's arguments."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    rows = []
    for n, value in enumerate(args):
        _name(names[n] if n < len(names) else "argument %d" % n, value, rows)
    for name, value in kwargs.items():
        _name(name, value, rows)
    return tuple(rows)


def _name(name, thing, rows):
    if isinstance(thing, (tuple, list)):
        for n, one in enumerate(thing[:_MAX_ARGUMENTS]):
            _name("%s[%d]" % (name, n), one, rows)
    elif isinstance(thing, dict):
        for key, one in thing.items():
            _name("%s[%r]" % (name, key), one, rows)
    elif len(rows) < _MAX_ARGUMENTS and _is_array(thing):
        kind = getattr(thing.dtype, "name", str(thing.dtype))
        rows.append((name, SHAPE, "(%s) %s" % (", ".join(str(size) for size in thing.shape), kind)))


def difference(new, known):
    """What differs from the nearest of the earlier signatures: (kind, argument, example), or None for nothing."""
    best = None
    for old in known:
        rows = [(old[n], new[n]) for n in range(min(len(old), len(new))) if old[n] != new[n]]
        if len(old) != len(new):
            rows.append((("arguments", "other", str(len(old))), ("arguments", "other", str(len(new)))))
        if best is None or len(rows) < len(best):
            best = rows
    if not best:
        return None
    # One batch's several tensors change together, and a tensor's shape may be what a number is made of.
    for wanted in (CLOSURE, SCALAR, SHAPE):
        for old, leaf in best:
            if leaf[1] == wanted:
                kind = wanted if old[1] == wanted else SCALAR
                value = leaf[2].partition(" #")[0] if wanted == CLOSURE else leaf[2]
                return kind, leaf[0], value
    return "other", best[0][1][0], best[0][1][2].partition(" #")[0]
