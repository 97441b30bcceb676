"""What acts from outside, under `--heal`: a run that ran out of memory or hangs is started again, with a change."""
