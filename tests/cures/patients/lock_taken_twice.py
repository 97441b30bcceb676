# cause: hang.deadlock
import threading
import time

import holter

lock = threading.Lock()


def note(text):
    with lock:
        print(text)


for step in range(60):
    time.sleep(0.05)
    holter.step(loss=1.0)
    if step == 40:
        with lock:
            note("best so far")
