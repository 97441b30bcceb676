"""The layout of the ring: what an agent writes into shared memory and the recorder reads, also after a SIGKILL.

Runs inside the training process: Python 3.9, standard library only.

A header page, then fixed slots, as many as the header says. Each slot carries its own sequence number and checksum, so
a slot that was being written when the process was killed is recognised and left out. The header's words are single
aligned 8-byte stores; each of them stands by itself.
"""

import struct

MAGIC = b"HOLTRING"
VERSION = 1
HEADER = 4096
SLOT = 192
CAPACITY = 2048  # slots; fewer where there is little room
SIZE = HEADER + SLOT * CAPACITY

# magic, version, slot size, capacity, pid, when the ring was made on the monotonic clock (ns), crc of what precedes
HEAD = struct.Struct("<8sIIIIQI")

# Words of 8 bytes at WORDS_AT, written one by one.
WORDS_AT = 256
(
    W_HEAD,  # slots written so far
    W_PHASE,  # what the process is doing now, see PHASES
    W_SINCE,  # since when (ns)
    W_ACTIVITY,  # the last sign of life (ns)
    W_STEP,  # steps done
    W_EPOCH,
    W_PLANNED,  # steps planned in all, 0 when not known
    W_ERRORS,  # errors of our own, caught by the guard
    W_PER_EPOCH,
    W_EPOCHS,
    W_BACKWARDS,  # of the present step
    W_COLLECTIVE,  # collectives that this rank has begun, in all of its groups
) = range(12)
WORDS = 16

PHASES = (
    "start",  # before the first step
    "other",  # the user's own code between the rest
    "data",
    "forward",
    "backward",
    "optimizer",
    "validation",
    "checkpoint",
    "compile",
)
START, OTHER, DATA, FORWARD, BACKWARD, OPTIMIZER, VALIDATION, CHECKPOINT, COMPILE = range(len(PHASES))

# Kinds of slots.
STEP = 1
LATE = 2
DEVICE = 3

# seq, t (ns), step, kind, flags, epoch, count, batch; 13 whole numbers; 5 floats. By kind:
#   STEP: the steps since the last such slot, `count` of them, `step` the last. Their time (ns) in all, the shortest,
#         the longest; how many were split into phases and the time of those; of those data, forward, backward,
#         optimizer; of all validation, checkpoint, compile; the first step with a non-finite loss, or 0. Loss: last,
#         lowest, highest; learning rate; gradient norm.
#   LATE: one loss or norm that came back from the device after its step's slot was written
#   DEVICE: count is the device's index; allocated, reserved, peak, driver, retries, ooms
BODY = struct.Struct("<QQQHHIII13Q5d")
CRC = struct.Struct("<I")
CRC_AT = BODY.size
assert BODY.size + CRC.size <= SLOT

F_LOSS_KNOWN = 1  # the loss is a reading; without it the field is empty, whatever it holds
F_GRAD_KNOWN = 2
