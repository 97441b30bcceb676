# cause: resource.file-descriptors
# line: kept.append(open(__file__))
# files: 64
import time

import holter

kept = []
for step in range(80):
    kept.append(open(__file__))
    holter.step(loss=1.0)
    time.sleep(0.02)
