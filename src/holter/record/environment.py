"""Every environment variable of Holter's, once: who sets it, and what it says.

Runs inside the training process, so the standard library only, on Python 3.9. `agent/inject/sitecustomize.py` alone
spells `HOLTER_AGENT_DIR` itself: it runs before anything of ours can be imported.
"""

# Set by the user.
HOME = "HOLTER_HOME"  # where records lie; ~/.holter without it
TOKEN = "HOLTER_TOKEN"  # the password of `holter serve`, where it listens beyond this machine

# Set by the recorder for the command.
AGENT_DIR = "HOLTER_AGENT_DIR"  # the folder that agents write into; without it the agent is not there
RUN = "HOLTER_RUN"  # the run's id, for scripts that would like to note it
HEAL = "HOLTER_HEAL"  # set under --heal
PLAN = "HOLTER_PLAN"  # what `holter plan` wants to know, as JSON

# Set for each attempt of a run under `--heal`.
ATTEMPT = "HOLTER_ATTEMPT"  # its number, from 1
STATE = "HOLTER_STATE"  # the folder in shared memory that attempts hand their state on in
STATE_DISK = "HOLTER_STATE_DISK"  # the same on disk
SPLIT = "HOLTER_SPLIT"  # chunks that a batch is run in from the first step on
WORKERS = "HOLTER_WORKERS"  # "0": the trainer loads its data itself

OF_AN_ATTEMPT = (ATTEMPT, STATE, STATE_DISK, SPLIT, WORKERS)
