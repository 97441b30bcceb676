"""Memory before the run: what a training step will need, and which settings fit.

It may run inside the user's own interpreter, by path (`holter plan -- python train.py`): so it keeps to Python 3.9,
imports nothing of ours but its own files, and a framework only inside functions.
"""
