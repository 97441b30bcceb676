"""Hangs: when a stall is one, and what it waits in."""

from __future__ import annotations

import pytest
from build import MONO, TRAINER, WORKER, causes, exception, ordinary_run

from holter.diagnosis.core.doctor import verdict
from holter.diagnosis.ending.ending import ending_of

LIB = "/venv/lib/python3.11/"


def frame(file, function, line=1, **more):
    return {"file": file, "line": line, "function": function, **more}


USER = frame("/home/u/train.py", "main", 41, user=True)
MODULE = frame("/home/u/train.py", "<module>", 60, user=True)


def stalled(frames=None, code="", pid=TRAINER, **fields):
    """A run that stopped making steps at second 59, its frames innermost first."""
    stall = {"since": 159.0, "limit": 12.0, "learned": "20 × the slowest step", "cpu": 0.0, "same_place": True}
    stall |= {"phase": "other", "step": 550, "state": "S", "wchan": "", "file": "/home/u/train.py", "line": 41}
    record = ordinary_run().event("stall", 75, pid=pid, function="main", code=code, **(stall | fields))
    threads = [{"name": "MainThread", "current": True, "frames": frames or [USER, MODULE]}]
    return record.event("stacks", 76, pid=pid, role="trainer", reason="stall", round=2, threads=threads)


def stopped(record):
    return record.event("stopping", 90, reason="hang").exit(91, 143, "SIGTERM")


def test_stopped_by_holter_is_hung_with_line_and_threshold():
    """What Holter stopped for a hang is hung: where, since when, and against which threshold."""
    record = stopped(stalled(code="q.get()"))

    ending = ending_of(record)

    assert ending.kind == "hung"
    assert "train.py:41 (q.get())" in ending.claim
    assert "32 s" in ending.claim
    assert "threshold 12 s" in verdict(record).findings[0].evidence[0].value


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_user_who_gives_up_on_a_stalled_run_ends_a_hang(signal):
    """Ctrl-C or kill on a run that is stalled does not make it an interruption."""
    assert ending_of(stalled().exit(90, None, signal)).kind == "hung"


def test_a_run_that_stirs_as_it_is_interrupted_still_hung():
    """Ctrl-C wakes the thread that waited, and it says so; that is no sign of life."""
    record = stalled().event("signal", 89, signal="SIGINT")
    exception(record, 89.1, "KeyboardInterrupt", "").event("stall-over", 89.5, pid=TRAINER, lasted=30)

    diagnosis = verdict(record.exit(90, 130, "SIGINT"))

    assert diagnosis.ending.kind == "hung"
    assert causes(diagnosis)[0].startswith("hang")


def test_live_stalled_run_hangs():
    """A run that is still on and stalled is hung now."""
    record = stalled()
    record.live = True

    assert ending_of(record).kind == "hung"


def test_stall_that_was_over_is_no_hang():
    """A pause that ended leaves no trace on a later Ctrl-C."""
    record = stalled().event("stall-over", 80, pid=TRAINER, lasted=21).exit(90, 130, "SIGINT")

    assert ending_of(record).kind == "interrupted"
    assert not [cause for cause in causes(verdict(record)) if cause.startswith("hang")]


def test_steps_after_a_stall_end_it():
    """Steps after the stall prove that it was none, even without a word that it was over."""
    record = stalled().steps(85, 560).exit(90, 130, "SIGINT")

    assert ending_of(record).kind == "interrupted"


def test_lock_without_cpu_is_a_deadlock():
    """The main thread in a lock, the same frames twice and no CPU: established."""
    record = stopped(stalled([frame(LIB + "threading.py", "wait"), frame(LIB + "queue.py", "get"), USER, MODULE]))

    diagnosis = verdict(record)

    assert causes(diagnosis) == ["hang.deadlock"]
    assert diagnosis.findings[0].grade == "established"
    assert diagnosis.findings[0].culprit.line == 41


def test_busy_loop_is_only_a_hypothesis():
    """A process at full CPU is no deadlock for sure."""
    diagnosis = verdict(stopped(stalled(cpu=1.0)))

    assert [finding.grade for finding in diagnosis.findings] == ["hypothesis"]
    assert "busy" in diagnosis.findings[0].claim


def test_stuck_worker_gives_the_workers_line():
    """The trainer waits in the loader: the culprit is the worker's own line."""
    loader = LIB + "site-packages/torch/utils/data/dataloader.py"
    record = stalled([frame(LIB + "threading.py", "wait"), frame(loader, "_try_get_data"), USER, MODULE])
    worker = [frame("/home/u/data.py", "__getitem__", 17, user=True), frame(LIB + "worker.py", "_worker_loop")]
    threads = [{"name": "MainThread", "frames": worker}]
    record.event("stacks", 76, pid=WORKER, role="worker", reason="stall", threads=threads)

    diagnosis = verdict(stopped(record))

    assert causes(diagnosis) == ["hang.worker"]
    assert (diagnosis.findings[0].culprit.file, diagnosis.findings[0].culprit.line) == ("/home/u/data.py", 17)


def test_dead_worker_is_told_as_gone():
    """A worker that vanished before the stall is named."""
    loader = LIB + "site-packages/torch/utils/data/dataloader.py"
    record = stalled([frame(loader, "_try_get_data"), USER, MODULE])
    record.event("process-gone", 58, pid=WORKER, rss=1, role="worker")

    diagnosis = verdict(stopped(record))

    assert causes(diagnosis) == ["hang.worker"]
    assert f"pid {WORKER}" in diagnosis.findings[0].claim


@pytest.mark.parametrize(
    ("frames", "fields", "cause"),
    [
        ([frame(LIB + "site-packages/torch/distributed/distributed_c10d.py", "all_reduce")], {}, "hang.collective"),
        ([frame(LIB + "site-packages/torch/cuda/__init__.py", "synchronize")], {}, "hang.device"),
        ([frame(LIB + "socket.py", "readinto"), frame(LIB + "http/client.py", "begin")], {}, "hang.io"),
        ([], {"state": "D"}, "hang.io"),
        ([], {"code": "data = f.read()", "wchan": "pipe_read"}, "hang.io"),
        ([], {"code": "lock.acquire()", "wchan": "futex_wait"}, "hang.deadlock"),
    ],
)
def test_kinds_of_waits(frames, fields, cause):
    """Each kind of wait is told by its frames, its state or the code on the line."""
    assert causes(verdict(stopped(stalled([*frames, USER, MODULE], **fields)))) == [cause]


def test_item_without_a_device_is_no_device_hang():
    """`.item()` on a machine without a GPU in use says nothing about a device."""
    assert causes(verdict(stopped(stalled(code="loss.item()")))) == ["hang.deadlock"]


def test_item_with_a_device_in_use_is():
    """`.item()` waits for the device where one holds the run's memory."""
    record = stalled(code="loss.item()")
    record.sample(59, nvidia={"list": [{"index": 0, "total": 8e9, "used": 4e9, "tree": 3e9}]})

    assert causes(verdict(stopped(record))) == ["hang.device"]


def test_frames_outermost_first_are_turned():
    """Stacks written the other way round give the same answer."""
    record = stalled([MODULE, USER, frame(LIB + "queue.py", "get"), frame(LIB + "threading.py", "wait")])

    assert causes(verdict(stopped(record))) == ["hang.deadlock"]
    assert verdict(stopped(record)).findings[0].grade == "established"


def test_framework_imports_around_the_user_line_are_no_cause():
    """torch.distributed outside the user's own frame (a launcher) does not make a lock a collective."""
    launcher = frame(LIB + "site-packages/torch/distributed/run.py", "main")
    record = stalled([frame(LIB + "queue.py", "get"), USER, launcher, MODULE])

    assert causes(verdict(stopped(record))) == ["hang.deadlock"]


@pytest.mark.parametrize(
    ("fields", "code", "cause", "words"),
    [
        ({"syscall": "read", "path": "/mnt/nfs/a.tar", "wchan": "x"}, "f.readinto(b)", "hang.io", "/mnt/nfs/a.tar"),
        ({"syscall": "wait4"}, "os.waitpid(p, 0)", "hang.deadlock", "child process"),
        ({"syscall": "futex"}, "lock.acquire()", "hang.deadlock", "a lock"),
        ({"syscall": "clock_nanosleep"}, "time.sleep(9e9)", "hang.poll", "sleeps"),
    ],
)
def test_calls_in_c_are_told_by_the_system_call(fields, code, cause, words):
    """Of a call without a Python frame, the kernel's system call and its file tell what it waits for."""
    diagnosis = verdict(stopped(stalled(code=code, **fields)))

    assert causes(diagnosis) == [cause]
    assert words in diagnosis.findings[0].claim


def test_native_frames_name_the_device():
    """py-spy's native frames, which may lack a file, show a wait for the GPU."""
    native = [frame("", "cuStreamSynchronize"), frame("libtorch_cuda.so", "at::native::item")]

    assert causes(verdict(stopped(stalled([*native, USER, MODULE], code="loss.backward()")))) == ["hang.device"]


def test_native_nccl_frames_name_the_collective():
    """A native frame of NCCL is a wait for other ranks, though no Python frame says so."""
    native = [frame("libnccl.so.2", "pncclAllReduce")]

    assert causes(verdict(stopped(stalled([*native, USER, MODULE])))) == ["hang.collective"]


def test_main_thread_is_chosen_over_others():
    """A helper thread in a lock does not speak for the main one."""
    record = stalled([frame(LIB + "socket.py", "recv_into"), USER, MODULE])
    threads = record.lines("stacks")[0]["threads"]
    threads[0] |= {"name": "", "main": True}
    threads.insert(0, {"name": "domain-helper", "frames": [frame(LIB + "threading.py", "wait")]})

    assert causes(verdict(stopped(record))) == ["hang.io"]


def attached(record):
    record.meta["attached"] = TRAINER
    record.timeline, record.recorder_lost = [], True
    return record.event("detached", 80, pid=TRAINER)


def test_attached_process_that_stands_still_hangs():
    """A process that Holter only looked at is judged by its stall, also after Holter is gone."""
    ending = ending_of(attached(stalled()))

    assert ending.kind == "hung"
    assert " in, at" not in ending.claim


def test_attached_process_is_never_called_sick_for_sure():
    """A few seconds in a queue may be how a process lives: supported, not established."""
    inside = [frame(LIB + "threading.py", "wait"), frame(LIB + "queue.py", "get")]

    assert [finding.grade for finding in verdict(attached(stalled([*inside, USER, MODULE]))).findings] == ["supported"]


def test_attached_process_that_moves_is_running():
    """A process that moved while it was looked at is running."""
    record = attached(ordinary_run(seconds=0))

    assert verdict(record).ending.kind == "running"
    assert verdict(record).healthy


def test_names_with_their_class_are_the_same_names():
    """py-spy writes `Queue.get` and native frames below it; the lock is still seen."""
    native = frame("/usr/lib/libpython3.11.so.1.0", "PyThread_acquire_lock_timed")
    inside = [native, frame(LIB + "threading.py", "Condition.wait"), frame(LIB + "queue.py", "Queue.get")]

    diagnosis = verdict(stopped(stalled([*inside, USER, MODULE])))

    assert [(f.cause, f.grade) for f in diagnosis.findings] == [("hang.deadlock", "established")]
    assert "get() of queue" in diagnosis.findings[0].claim


def test_a_sleeping_loop_that_was_met_awake_is_still_one():
    """Between two sleeps there is no system call; the code on the line says what it does."""
    assert causes(verdict(stopped(stalled(code="time.sleep(1)", syscall="", wchan="")))) == ["hang.poll"]


def test_idle_worker_is_not_the_stuck_one():
    """A forked worker carries the trainer's frames; one that waits for work itself is not to blame."""
    loader = LIB + "site-packages/torch/utils/data/dataloader.py"
    loop = [frame(LIB + "site-packages/torch/utils/data/_utils/worker.py", "_worker_loop"), USER, MODULE]
    record = stalled([frame(loader, "_try_get_data"), USER, MODULE])
    idle = [frame(LIB + "multiprocessing/queues.py", "get"), *loop]
    stuck = [frame("/home/u/data.py", "__getitem__", 17, user=True), frame(LIB + "fetch.py", "fetch"), *loop]
    for pid, frames in ((WORKER, idle), (WORKER + 1, stuck)):
        record.event("stacks", 76, pid=pid, role="worker", reason="stall", threads=[{"name": "main", "frames": frames}])

    finding = verdict(stopped(record)).findings[0]

    assert (finding.cause, finding.culprit.file, finding.culprit.line) == ("hang.worker", "/home/u/data.py", 17)


def test_rank_that_never_came_is_named():
    """The rank that was told first may be the one that the others wait for: its line is the one to see."""
    record = stalled([frame("", "clock_nanosleep"), USER, MODULE], code="time.sleep(60)")
    record.event("guest", 0.6, pid=TRAINER, role="trainer", rank="0")
    waits = [frame("libtorch.so", "c10d::Reducer::finalize"), frame("/home/u/train.py", "step", 30, user=True)]
    record.event("stacks", 76, pid=11, role="trainer", reason="stall", threads=[{"name": "main", "frames": waits}])

    finding = verdict(stopped(record)).findings[0]

    assert (finding.cause, finding.rank, finding.culprit.line) == ("hang.collective", 0, 41)
    assert "rank 0 never came" in finding.claim
    assert "it stands at train.py:41" in finding.claim


def thread(name, *frames, main=False):
    return {"name": name, "main": main, "frames": list(frames)}


def at(line, function="<module>"):
    return frame("/home/u/train.py", function, line, user=True, code="")


def hung_in(script, line, *threads, code=""):
    """A run that stands on a line of a script, with the frames of all its threads."""
    record = stalled(line=line, code=code, syscall="futex")
    record.sources["/home/u/train.py"] = script.strip().splitlines()
    record.event("stacks", 77, pid=TRAINER, role="trainer", reason="stall", round=2, threads=list(threads))
    return verdict(stopped(record)).findings[0]


def test_the_same_thread_took_the_lock():
    """A lock that is taken twice by one thread: both lines are told."""
    script = """
def log(text):
    with lock:
        print(text)

with lock:
    log("best so far")
"""
    finding = hung_in(script, 2, thread("MainThread", at(2, "log"), at(6), main=True), code="with lock:")

    assert (finding.cause, finding.grade, finding.culprit.line) == ("hang.deadlock", "established", 2)
    assert "the same thread has held it since train.py:5" in finding.claim
    assert "RLock" in finding.cures[0].title


def test_two_locks_in_opposite_order():
    """Each thread holds what the other waits for: all four lines are told."""
    script = """
def writer():
    with first:
        with second:
            pass

with second:
    with first:
        pass
"""
    main, writer = thread("MainThread", at(7), main=True), thread("Thread-1", at(3, "writer"))

    finding = hung_in(script, 7, writer, main, code="with first:")

    assert "Thread-1 has held it since train.py:2" in finding.claim
    assert "for `second`, which this thread holds since train.py:6" in finding.claim
    assert "same order" in finding.cures[0].title


OTHERS_LOCKED = """
class Actor:
    def run(self):
        with self.buffer.lock:
            with self.store.lock:
                pass

class Publisher:
    def run(self):
        with self.store.lock:
            with self.buffer.lock:
                pass

with buffer.lock:
    pass
"""


def test_two_threads_that_wait_for_each_other_are_told_to_the_one_that_came_upon_them():
    """The main thread holds nothing: the line is one of the two, and each lock is told by its whole name."""
    actor, publisher = thread("actor", at(4, "run")), thread("publisher", at(10, "run"))
    main = thread("MainThread", at(13), main=True)

    finding = hung_in(OTHERS_LOCKED, 13, publisher, actor, main, code="with buffer.lock:")

    assert "actor has held it since train.py:3" in finding.claim
    assert "waits at train.py:4 for `self.store.lock`, which publisher has held since train.py:9" in finding.claim
    assert "publisher waits at train.py:10 for `self.buffer.lock`, which actor holds" in finding.claim
    assert (finding.culprit.line, "same order" in finding.cures[0].title) == (4, True)


def given_up_on(silence=75.0, places=("__getitem__",), phase="data", longest=0.08, signal="SIGTERM", batches=0):
    """A run whose trainer waited for its data that long, with a look every ten seconds, until somebody ended it."""
    record = ordinary_run()
    for line in record.lines("steps"):
        line["max"] = longest
    for number in range(int(silence // 10)):
        m = 62 + 10 * number
        loop = [frame(LIB + "site-packages/torch/utils/data/dataloader.py", "_try_get_data"), USER, MODULE]
        own = frame("/home/u/data.py", places[number % len(places)], 17, user=True, code="while m.sum() < 20:")
        worker = [own, frame(LIB + "worker.py", "_worker_loop"), USER, MODULE]
        idle = [frame(LIB + "connection.py", "poll"), frame(LIB + "worker.py", "_worker_loop"), USER, MODULE]
        for pid, role, frames in ((TRAINER, "trainer", loop), (WORKER, "worker", worker), (WORKER + 1, "worker", idle)):
            at_phase = {"phase": phase} if role == "trainer" else {}
            threads = [{"name": "main", "frames": frames}]
            record.event("stacks", m, pid=pid, role=role, reason="slow", round=number + 1, threads=threads, **at_phase)
    for pid in (WORKER, WORKER + 1):
        record.event("guest", 2, pid=pid, ppid=TRAINER, role="worker")
    for number in range(batches):
        m = MONO + 59 + number * silence / batches
        record.sample(59 + number * silence / batches, guests=[{"pid": TRAINER, "phase": "data", "activity": m}])
    if not signal:
        return record.exit(59 + silence, 0)
    return record.event("signal", 59 + silence, signal=signal).exit(59.1 + silence, 143, signal)


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT"])
def test_a_worker_that_was_busy_with_one_sample_until_somebody_gave_up_is_stuck(signal):
    """A signal is never the first finding of a run that had stood still: the worker's own line is."""
    diagnosis = verdict(given_up_on(signal=signal))

    assert (diagnosis.ending.kind, causes(diagnosis)[0]) == ("hung", "hang.worker")
    assert (diagnosis.findings[0].culprit.file, diagnosis.findings[0].culprit.line) == ("/home/u/data.py", 17)
    assert diagnosis.findings[0].grade == "supported"


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"silence": 25.0}, id="for a moment"),
        pytest.param({"longest": 3.0}, id="as long as steps may take"),
        pytest.param({"places": ("__getitem__", "decode")}, id="a worker that moves"),
        pytest.param({"phase": "validation"}, id="in a validation"),
        pytest.param({"batches": 20}, id="while batches come, each as slowly"),
        pytest.param({"signal": ""}, id="and then it ended"),
    ],
)
def test_what_else_may_end_in_a_silence_is_no_hang(how):
    """Whoever ends a run that waits as it always may is told that a signal ended it."""
    assert verdict(given_up_on(**how)).ending.kind != "hung"


MASKS = """
def masks(ratio):
    count = 0
    while count < ratio * 64:
        size = draw()
        count += place(size)
    return count

step = 0
while step < 3000:
    mask = masks(step / 300)
    loss = model(mask)
    loss.backward()
    step += 1
"""


def busy_in(line, *, function="masks", trains=11, cpu=0.9, silence=75.0, script=MASKS):
    """A run that was busy at lines of one function at every look, until somebody ended it."""
    record = ordinary_run()
    record.sources["/home/u/train.py"] = script.strip().splitlines()
    module = frame("/home/u/train.py", "<module>", 10, user=True, code="mask = masks(step / 300)")
    for number in range(int(silence // 5)):
        own = frame("/home/u/train.py", function, line + number % 2, user=True)
        frames = [frame(LIB + "random.py", "uniform"), own, module]
        threads = [{"name": "main", "frames": frames}]
        record.event("stacks", 62 + 5 * number, pid=TRAINER, role="trainer", reason="slow", round=number + 1,
                     threads=threads, phase="other")  # fmt: skip
        record.sample(62 + 5 * number, processes={"cpu_s": 50 + cpu * 5 * number, "list": []})
    training = [frame("/home/u/train.py", "<module>", trains, user=True)]
    record.event("stacks", 40, pid=TRAINER, role="trainer", reason="slow", round=1, phase="forward",
                 threads=[{"name": "main", "frames": training}])  # fmt: skip
    return record.event("signal", 59 + silence, signal="SIGTERM").exit(59.1 + silence, 143, "SIGTERM")


def test_a_loop_whose_condition_never_comes_true_is_named_when_somebody_gave_up_on_it():
    """At every look the process computed within one `while`, and not in the one that it trains in."""
    diagnosis = verdict(busy_in(4))

    finding = diagnosis.findings[0]
    assert (diagnosis.ending.kind, finding.cause, finding.grade) == ("hung", "hang.poll", "supported")
    assert (finding.culprit.line, finding.culprit.code) == (3, "while count < ratio * 64:")
    assert finding.claim.endswith("is in this loop at every look, 0.9 cores busy: nothing makes its condition false")


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"silence": 25.0}, id="for a moment"),
        pytest.param({"cpu": 0.01}, id="asleep"),
        pytest.param({"line": 10, "function": "<module>"}, id="in the loop that it trains in"),
        pytest.param({"script": MASKS.replace("while count < ratio * 64", "for count in range(10**9)")}, id="counted"),
        pytest.param({"script": MASKS.replace("size = draw()", "size = yield")}, id="one that hands out"),
    ],
)
def test_other_work_that_somebody_ended_is_no_endless_loop(how):
    """What is counted, hands something out, trains or does nothing may end by itself, or has."""
    assert verdict(busy_in(**{"line": 4, **how})).ending.kind != "hung"


def test_a_lock_that_was_let_go_is_held_by_nobody():
    """A `with` that is over, and another lock, are not the holder."""
    script = """
with lock:
    prepare()
with other:
    pass
lock.acquire()
"""
    finding = hung_in(script, 5, thread("MainThread", at(5), main=True), code="lock.acquire()")

    assert "held" not in finding.claim


QUEUE = """
def produce(q):
    for sample in samples:
        q.put(load(sample))

Thread(target=produce, args=(q,)).start()
while True:
    batch = q.get()
"""
WAITS = [frame(LIB + "threading.py", "wait"), frame(LIB + "queue.py", "get")]


def test_a_queue_whose_producer_is_gone():
    """Nobody is left to fill it, and how the producer ended is told where it was printed."""
    record = stalled([*WAITS, at(7)], line=7, code="batch = q.get()")
    record.sources["/home/u/train.py"] = QUEUE.strip().splitlines()
    record.output = (
        "Exception in thread Thread-1 (produce):\nTraceback (most recent call last):\n"
        '  File "/home/u/train.py", line 3, in produce\n    q.put(load(sample))\nOSError: truncated file\n'
    )

    finding = verdict(stopped(record)).findings[0]

    assert (finding.cause, finding.culprit.line) == ("hang.deadlock", 7)
    assert "filled only at train.py:3, in produce(), and no thread is in it any more" in finding.claim
    assert "OSError at train.py:3" in finding.claim


def test_a_queue_whose_producer_is_there():
    """The producer's own line is where to look."""
    main, other = thread("MainThread", *WAITS, at(7), main=True), thread("Thread-1", at(3, "produce"))

    finding = hung_in(QUEUE, 7, other, main, code="batch = q.get()")

    assert "`q` is filled by Thread-1, which stands at train.py:3" in finding.claim


def test_an_event_that_nothing_sets():
    """A wait that no line of the script can end."""
    wait = frame(LIB + "threading.py", "wait")

    finding = hung_in(
        "ready = Event()\nready.wait()", 2, thread("MainThread", wait, at(2), main=True), code="ready.wait()"
    )

    assert "nothing in train.py sets or notifies `ready`" in finding.claim


def test_a_child_that_holds_a_forked_lock():
    """A join for a child says where the child stands."""
    join = frame(LIB + "multiprocessing/popen_fork.py", "wait")
    record = stalled([join, frame(LIB + "multiprocessing/process.py", "join"), USER, MODULE], code="p.join()")
    child = [frame("/home/u/train.py", "child", 15, user=True, code="with lock:"), frame(LIB + "process.py", "run")]
    record.event("stacks", 77, pid=30, role="child", reason="stall", threads=[thread("MainThread", *child, main=True)])

    finding = verdict(stopped(record)).findings[0]

    assert (finding.cause, finding.culprit.line) == ("hang.deadlock", 41)
    assert "child process (pid 30), which stands at train.py:15 (with lock:)" in finding.claim
    assert "spawn" in finding.cures[0].title


@pytest.mark.parametrize("role", ["worker", "trainer"])
def test_a_worker_that_inherited_a_held_lock_is_told_who_takes_it_in_the_trainer(role):
    """The thread that had it when the worker was forked is not in the worker: only the source can name it."""
    script = (
        "class Store:\n def get(self):\n  with self.guard:\n   pass\n def preload(self):\n  with self.guard:\n   pass"
    )
    spot = frame("/home/u/train.py", "get", 3, user=True, code="with self.guard:")
    record = stalled([spot, MODULE], line=3, code="with self.guard:", syscall="futex")
    record.event("guest", 0.5, pid=TRAINER, role=role)
    record.sources["/home/u/train.py"] = script.split("\n")
    record.event("stacks", 76, pid=TRAINER, reason="stall", threads=[thread("MainThread", spot, main=True)])

    finding = verdict(stopped(record)).findings[0]

    assert finding.cause == "hang.deadlock"
    assert ("the trainer takes `self.guard` at train.py:6 in preload() too" in finding.claim) is (role == "worker")


def test_a_full_pipe_whose_reader_waits_for_its_writer():
    """The kernel has said who waits for whom, so it is no matter of frames."""
    circle = [{"pid": 10, "syscall": "write", "path": "pipe:[1]"}, {"pid": 31, "syscall": "write", "path": "pipe:[2]"}]
    record = stalled([USER, MODULE], code="self.tool.stdin.flush()", syscall="write", path="pipe:[1]", circle=circle)

    finding = verdict(stopped(record)).findings[0]

    assert (finding.cause, finding.grade, finding.culprit.line) == ("hang.deadlock", "established", 41)
    assert "waits in write() for process 31 (unnamed), which in turn waits in write() for it" in finding.claim
    assert "communicate()" in finding.cures[0].title


def test_a_wait_for_a_child_is_no_wait_for_an_event():
    """`p.wait()` of a process: that nothing sets `p` is true, and says nothing."""
    record = stalled([frame(LIB + "subprocess.py", "wait"), USER, MODULE], code="p.wait()", syscall="wait4")
    record.sources["/home/u/train.py"] = ["import subprocess"] * 40 + ["p.wait()"]

    assert "sets or notifies" not in verdict(stopped(record)).findings[0].claim


def test_a_child_whose_output_nobody_reads_before_it_has_ended():
    """The name on the line is that of a process, and no lock is looked for in it."""
    circle = [{"pid": 10, "syscall": "wait4", "path": ""}, {"pid": 31, "syscall": "write", "path": "pipe:[2]"}]
    record = stalled([USER, MODULE], code="p.wait()", syscall="wait4", circle=circle)
    record.sources["/home/u/train.py"] = ["import subprocess"] * 40 + ["p.wait()"]

    finding = verdict(stopped(record)).findings[0]

    assert "which in turn waits in write() for it: none of them can go on" in finding.claim
    assert "sets" not in finding.claim
    assert "communicate()" in finding.cures[0].title


def test_a_pool_that_lost_a_worker():
    """The task went with the worker that died."""
    pool = LIB + "multiprocessing/pool.py"
    inside = [frame(LIB + "threading.py", "wait"), frame(pool, "wait"), frame(pool, "get"), frame(pool, "map")]
    record = stalled([*inside, USER, MODULE]).event("process-gone", 60, pid=31, role="")

    finding = verdict(stopped(record)).findings[0]

    assert finding.cause == "hang.deadlock"
    assert "died (pid 31)" in finding.claim
    assert "ProcessPoolExecutor" in finding.cures[0].title


C10D = LIB + "site-packages/torch/distributed/distributed_c10d.py"
RANKS = """
for batch in batches:
    train(batch)
if rank == 0:
    dist.barrier()
"""


def two_ranks(first, second):
    """Two ranks, each with the frames that it stands in."""
    record = stalled(first, line=first[-1]["line"])
    record.sources["/home/u/train.py"] = RANKS.strip().splitlines()
    for pid, rank in ((TRAINER, "0"), (11, "1")):
        record.event("guest", 0.6, pid=pid, role="trainer", rank=rank)
    record.event("stacks", 77, pid=11, role="trainer", reason="stall", threads=[thread("main", *second, main=True)])
    return record


def test_ranks_in_different_collectives():
    """Both wait, in different calls: the one that only rank 0 makes is the line."""
    record = two_ranks([frame("libtorch.so", "c10d::Reducer::finalize"), at(2)], [frame(C10D, "barrier"), at(4)])

    finding = verdict(stopped(record)).findings[0]

    assert (finding.cause, finding.culprit.line) == ("hang.collective", 4)
    assert "rank 1 waits in barrier() at train.py:4" in finding.claim
    assert "outside of the `if`" in finding.cures[0].title


SAVED = """
def save(epoch):
    dist.barrier()
def run(self, epoch):
    for batch in self.batches:
        train(batch)
    if {test}:
        save(epoch)
"""


@pytest.mark.parametrize(
    ("test", "alone"),
    [("self.gpu == 0 and epoch % 2 == 0", True), ("accelerator.is_main_process", True), ("epoch % 2 == 0", False)],
)
def test_a_collective_in_what_one_rank_alone_calls(test, alone):
    """The `if` stands around a call that leads there; one that all ranks go through alike says nothing.

    Then the rank at the barrier has come to the end of its steps first, of which the other wants more.
    """
    there = [frame(C10D, "barrier"), at(2, "save"), at(7, "run")]
    record = two_ranks([frame("libtorch.so", "c10d::Reducer::finalize"), at(5, "run")], there)
    record.sources["/home/u/train.py"] = SAVED.format(test=test).strip().splitlines()

    finding = verdict(stopped(record)).findings[0]

    assert (finding.culprit.line, "outside of the `if`" in finding.cures[0].title) == (2, alone)


@pytest.mark.parametrize("message", ["Connection closed by peer [127.0.0.1]:5", "Timed out waiting 1800000ms for recv"])
def test_a_rank_that_gave_up_waiting(message):
    """The error is raised on the rank that waited; the one that left early is named."""
    record = ordinary_run().steps(55, 499, pid=11)
    for pid, rank in ((TRAINER, "0"), (11, "1")):
        record.event("guest", 0.6, pid=pid, role="trainer", rank=rank)
    exception(record, 58, "RuntimeError", f"[gloo/transport/tcp/pair.cc:553] {message}", pid=TRAINER)
    record.event("process-gone", 59, pid=11, role="trainer").exit(62, 1)

    diagnosis = verdict(record)

    assert causes(diagnosis) == ["hang.collective"]
    assert "rank 1 had left after 499 steps" in diagnosis.findings[0].claim
    assert diagnosis.ending.kind == "exception"


def test_a_connection_that_broke_in_one_process_is_its_own():
    """Without other ranks it is an ordinary error."""
    record = exception(ordinary_run(), 58, "ConnectionError", "Connection closed by peer").exit(60, 1)

    assert causes(verdict(record)) == ["user-error"]


def test_a_rank_that_raised_first_is_the_cause():
    """Its error is the root; that the others lost their connection follows from it."""
    record = ordinary_run()
    for pid, rank in ((TRAINER, "0"), (11, "1")):
        record.event("guest", 0.6, pid=pid, role="trainer", rank=rank)
    exception(record, 57, "ValueError", "bad sample", pid=11)
    exception(record, 58, "RuntimeError", "[gloo/transport/tcp/pair.cc:553] Connection closed by peer", pid=TRAINER)

    assert causes(verdict(record.exit(60, 1))) == ["user-error"]
