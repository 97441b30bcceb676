"""Holter: a Holter monitor for model training."""

from __future__ import annotations

from holter.agent.api import resumable, step, track

__all__ = ["plan", "resumable", "step", "track"]
__version__ = "0.1.0"


def plan(model, batch=None, optimizer=None, loss=None, **settings):  # type: ignore[no-untyped-def]
    """Foretell the memory of a training step, and which settings fit; print it, or read `.told`."""
    from holter.planner.plan import make_plan
    from holter.views.planned import Plan

    return Plan(make_plan(model, batch, optimizer, loss, **settings))


def load_ipython_extension(shell):  # type: ignore[no-untyped-def]
    """`%load_ext holter` in a notebook."""
    from holter.commands._notebook import load

    load(shell)
