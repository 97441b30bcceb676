"""Static rules for training scripts: what halts or slows a run, found before it starts."""
