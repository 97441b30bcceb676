"""holter.track and holter.step: nothing at all outside Holter, steps and losses inside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holter
from holter.record import ring_format as f
from tests.agent.agent_run import Run, run


def test_outside_holter_the_order_is_the_loaders() -> None:
    """Every item once, in order, whatever kind of iterable it is."""
    assert list(holter.track([3, 1, 2])) == [3, 1, 2]
    assert list(holter.track(x * x for x in range(4))) == [0, 1, 4, 9]
    assert list(holter.track({"a": 1}, total=1)) == ["a"]
    assert list(holter.track([])) == []


@pytest.mark.parametrize("arguments", [{}, {"loss": 1.0}, {"loss": "x"}, {"loss": object(), "lr": None, "batch": -1}])
def test_outside_holter_a_step_is_nothing(arguments: dict[str, Any]) -> None:
    """Whatever it is given."""
    assert holter.step(**arguments) is None


class Odd(Exception):
    pass


def failing() -> Iterator[int]:
    yield 1
    raise Odd("in the loader")


def test_outside_holter_a_loaders_error_comes_through() -> None:
    """The same error, after the same items."""
    items = holter.track(failing())

    assert next(items) == 1
    with pytest.raises(Odd, match="in the loader"):
        next(items)


def test_outside_holter_a_generator_is_left_as_a_plain_loop_leaves_it() -> None:
    """After a `break` it can be gone on with; when nobody holds it any more it is closed."""
    closed = []

    def numbers() -> Iterator[int]:
        try:
            yield from range(5)
        finally:
            closed.append(True)

    source = numbers()
    for item in holter.track(source):
        if item == 1:
            break
    assert closed == []
    assert next(source) == 2
    del source
    for _ in holter.track(numbers()):
        break

    assert closed == [True, True]


def test_what_is_no_iterable_says_so_as_python_does() -> None:
    """When the loop begins."""
    with pytest.raises(TypeError, match="not iterable"):
        list(holter.track(7))


def trained(folder: Path, script: str) -> Run:
    found = run(folder, script)
    assert found.code == 0, found.err
    assert found.kind("guest-error") == []
    return found


def test_inside_holter_passes_and_losses_are_counted(tmp_path: Path) -> None:
    """Three epochs of twenty steps, with the last loss, the rate and the size of a batch."""
    found = trained(
        tmp_path,
        """
        import time, holter
        for epoch in range(3):
            for i in holter.track(range(20)):
                time.sleep(0.021)
                holter.step(loss=epoch + i / 100, lr=0.5, batch=8)
        """,
    )
    assert found.words is not None

    assert (found.words[f.W_STEP], found.words[f.W_EPOCH], found.words[f.W_PER_EPOCH]) == (60, 3, 20)
    assert sum(slot.count for slot in found.slots) == 60
    last = found.slots[-1]
    assert (last.loss, last.lr, last.batch, last.epoch) == (2.19, 0.5, 8, 3)
    assert {event["role"] for event in found.kind("guest")} == {"trainer"}


def test_inside_holter_a_pass_without_step_is_a_step(tmp_path: Path) -> None:
    """`track` alone counts passes; with `step` in the body each pass is still one."""
    found = trained(
        tmp_path,
        """
        import holter
        for i in holter.track(range(10)): pass
        for i in holter.track(x for x in range(10)): holter.step()
        for i in holter.track(range(10), total=-1): pass
        for i in holter.track(range(10), total="many"):
            if i == 4: break
        """,
    )
    assert found.words is not None

    assert found.words[f.W_STEP] == 34


def test_inside_holter_the_loop_behaves_as_outside(tmp_path: Path) -> None:
    """Order, errors, generators and what is no iterable: the same words come out with and without the agent."""
    script = """
        import holter
        def numbers():
            try:
                yield from range(5)
                raise KeyError("in the loader")
            finally:
                print("closed")
        source = numbers()
        for item in holter.track(source):
            print(item)
            if item == 1: break
        print("then", next(source))
        try:
            for item in holter.track(numbers()): print(item)
        except KeyError as error:
            print("raised", error)
        def stops():
            yield 1
            return
        print(list(holter.track(stops())), list(holter.track([])), list(holter.track({"a": 1})))
        try:
            list(holter.track(7))
        except TypeError as error:
            print(error)
        """
    plain = run(tmp_path / "plain", script, agent=False)
    watched = run(tmp_path / "watched", script)

    assert (watched.code, watched.out, watched.err) == (plain.code, plain.out, plain.err)
    assert plain.out.count("closed") == 2


def test_a_loss_on_a_device_is_not_read(tmp_path: Path) -> None:
    """Reading it would make the device wait: of PyTorch, TensorFlow, JAX, CuPy and MLX alike."""
    found = trained(
        tmp_path,
        """
        import holter
        class OnDevice:
            def __float__(self): raise SystemExit("it was read")
        def like(**fields): return type("Tensor", (OnDevice,), fields)()
        on_device = [
            like(is_cpu=False, device="cuda:0"),
            like(device="/job:localhost/replica:0/task:0/device:GPU:0"),
            like(device="TPU_0(process=0)"),
            like(device="cpu", is_ready=lambda self: False),
            type("array", (OnDevice,), {"__module__": "mlx.core"})(),
        ]
        for loss in on_device:
            holter.step(loss=loss, lr=loss, batch=loss)
        """,
    )
    assert found.words is not None

    assert found.words[f.W_STEP] == 5
    assert all(slot.loss is None for slot in found.slots)


@pytest.mark.parametrize(
    "loss",
    [
        "0.5",
        "Fraction(1, 2)",
        "Decimal('0.5')",
        "like(is_cpu=True)",
        "like(device='cpu')",
        "like(device='/device:CPU:0')",
    ],
)
def test_a_loss_at_hand_is_read_whatever_it_is_of(tmp_path: Path, loss: str) -> None:
    """Numbers, fractions, and tensors that lie in the host's memory."""
    found = trained(
        tmp_path,
        f"""
        import holter
        from decimal import Decimal
        from fractions import Fraction
        def like(**fields): return type("Tensor", (), dict(fields, __float__=lambda self: 0.5))()
        holter.step(loss={loss})
        """,
    )

    assert [slot.loss for slot in found.slots] == [0.5]


def test_what_is_no_loss_is_a_step_all_the_same(tmp_path: Path) -> None:
    """Many numbers, a text, a size that no batch has: the step counts, and no error reaches the script."""
    found = trained(
        tmp_path,
        """
        import holter
        class Many:
            def __float__(self): raise TypeError("only one number can be a float")
        for loss in ("x", [1, 2], Many(), 10 ** 400, None, float("nan")):
            holter.step(loss=loss, lr=loss, batch=loss)
        for batch in (-1, 2 ** 40, 1.5, "x", None):
            holter.step(batch=batch)
        """,
    )
    assert found.words is not None

    assert found.words[f.W_STEP] == 11
