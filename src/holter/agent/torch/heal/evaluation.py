"""A call of a model without gradients that does not fit (PyTorch), run in parts along the batch.

There is no backward to keep anything for: the outputs of the parts are put together, and that is all. What was found to
fit is remembered for each shape, so that only the first such call fails.
"""

from ...heal.leaves import Unsplittable, take_out
from ...heal.out_of_memory import is_oom, let_go
from .chunks import Call
from .random_numbers import put_back, states_of


def is_known(care, args, kwargs):
    """Whether so many samples are known not to fit."""
    if not care.evaluated:
        return False
    call = Call(care, None, args, kwargs, care.axis)
    return call.size > care.evaluated.get(call.shapes, call.size)


def in_parts(care, inner, args, kwargs):
    """The outputs of the whole batch; raises Unsplittable where there are no parts, or none that fits."""
    care.refresh()
    call, axis = Call(care, inner, args, kwargs, care.axis), care.axis
    try:
        call.examine(graded=False)
    except Unsplittable as error:
        if not call.size or not care.other_axis(call):
            raise
        call, why = Call(care, inner, args, kwargs, care.axis), error
    else:
        return _joined(call)
    try:
        call.examine(graded=False)
    except Unsplittable:
        care.axis = axis  # this says nothing of calls with gradients
        raise why from None
    return _joined(call)


def _joined(call):
    care = call.care
    rows = care.evaluated.get(call.shapes) or care.halve(call.size)
    begin, whole, build = 0, [], None
    while begin < call.size:
        end = care.end_of_part(begin, rows, call.size)
        start = states_of(care.torch, care.device)
        done = _part(call, begin, end)
        if done is None:
            put_back(care.torch, care.device, start)
            care.room.ran_out()
            rows = care.halve(end - begin)
            continue
        build, outputs = done
        if not whole:
            whole = [kind.room(one, one.shape, call.size) for kind, one in zip(call.kinds, outputs)]  # noqa: B905
        for kind, room, one in zip(call.kinds, whole, outputs):  # noqa: B905
            kind.put(room, one, begin, end, call.weight(kind, begin, end))
        done = outputs = one = None
        begin = end
    if build is None:
        raise Unsplittable("the batch has no samples")
    if call.draws is not None:
        call.draws.finish()
    care.evaluated[call.shapes] = rows
    care.split.tell_split(care, call.size, rows, "the %d samples of an evaluation did not fit: they are")
    return build(iter(whole))


def _part(call, begin, end):
    """What puts the outputs together, and the outputs; None where they do not fit."""
    care, failed = call.care, None
    args, kwargs = call.some(begin, end)
    try:
        with care.inside():
            out = call.called(args, kwargs, begin, end, call.draws)
    except Exception as error:
        if not is_oom(error):
            raise Unsplittable("a part failed (%s)" % type(error).__name__) from error
        failed = error
    if failed is not None:
        let_go(failed)
        return None
    flat = []
    return take_out(out, care.is_tensor, flat), flat
