"""What acts from outside, under `--heal`: a run that was killed or hangs is started again, changed by its diagnosis."""
