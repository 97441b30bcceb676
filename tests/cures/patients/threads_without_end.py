# cause: resource.processes
# line: threading.Thread(target=time.sleep, args=(0.05 if step < 5 else 30,), daemon=True).start()
# pids: 60
import threading
import time

import holter

for step in range(120):
    threading.Thread(target=time.sleep, args=(0.05 if step < 5 else 30,), daemon=True).start()
    holter.step(loss=1.0)
    time.sleep(0.02)
