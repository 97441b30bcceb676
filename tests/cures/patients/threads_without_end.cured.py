import time
from concurrent.futures import ThreadPoolExecutor

import holter

pool = ThreadPoolExecutor(max_workers=8)
for step in range(120):
    pool.submit(time.sleep, 0.05)
    holter.step(loss=1.0)
    time.sleep(0.02)
