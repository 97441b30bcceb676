"""Which rank of a job is to blame, in one record and over the records of several machines."""

from __future__ import annotations

import pytest
from build import MONO, WALL, BuiltRecord, causes, exception

from holter.diagnosis.core.doctor import verdict
from holter.diagnosis.ranks.join import job_verdict

SCRIPT = "/home/u/train.py"
LOST = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:5042"


def job(*ranks, world=None, host="node0", shift=0.0, key="torchrun:abc", run="r-0001", holter="0.1.0", started=WALL):
    """Make a record with these ranks; its monotonic clock is `shift` seconds ahead."""
    record = BuiltRecord(
        {
            "schema": 1, "id": run, "command": ["torchrun", "train.py"], "started": started, "mono": MONO + shift,
            "host": host, "boot_id": host, "holter": holter, "platform": "Linux",
        }
    )  # fmt: skip
    record.shift, record.world = shift, world or len(ranks)
    at(record, 0.1, "spawned", pid=1)
    for rank in ranks:
        facts = {"key": key, "launcher": "torchrun", "rank": rank, "world": record.world}
        hello = {"pid": pid(rank), "ppid": 1, "rank": rank, "world": record.world, "job": facts}
        at(record, 1, "guest", role="python", **hello)
        at(record, 2, "guest", role="trainer", **hello)
    return record


def pid(rank):
    return 100 + rank


def at(record, second, kind, **fields):
    """Add an event; every clock of a record is ahead by its shift."""
    record.events.append({"k": kind, "m": MONO + record.shift + second, "t": WALL + second, **fields})
    record.events.sort(key=lambda line: line["m"])
    return record


def met(record, *ranks):
    for rank in ranks:
        at(record, 3, "rank-came", pid=pid(rank), rank=rank, world=record.world, file=SCRIPT, line=9)
        at(record, 3.2, "rank-joined", pid=pid(rank), rank=rank, world=record.world, backend="gloo", waited=0.2)
    return record


def steps(record, rank, last, second=20.0, every=0.1):
    for step in range(max(1, last - 30), last + 1):
        end = second - (last - step) * every
        record.timeline.append(
            {"k": "steps", "m": MONO + record.shift + end, "t": WALL + end, "pid": pid(rank), "n": 1, "first": step,
             "last": step, "sum": every, "forward": every}
        )  # fmt: skip
    record.timeline.sort(key=lambda line: line["m"])
    return record


def stands(record, rank, second, begun, line, op="", number=0, sizes="[[8]]", code="x", since=None):
    """A rank tells that it has begun nothing for a while; `op` is what it waits in."""
    rows = [{"group": "0", "number": number, "op": op, "sizes": sizes, "done": False}] if op else []
    since = second - 9 if since is None else since
    frame = {"file": SCRIPT, "line": line, "function": "main", "code": code, "user": True}
    return at(
        record, second, "collectives", pid=pid(rank), rank=rank, world=record.world, begun=begun,
        since=MONO + record.shift + since, silent=second - since, step=begun, list=rows, file=SCRIPT, line=line,
        code=code, frames=[frame],
    )  # fmt: skip


def stalled(record, rank, second, line):
    at(
        record, second, "stall", pid=pid(rank), since=MONO + record.shift + second - 12, phase="backward", step=50,
        limit=9.0, cpu=0.0, same_place=True, file=SCRIPT, line=line, code="loss.backward()",
    )  # fmt: skip
    at(record, second + 5, "stopping", reason="hang")
    return at(record, second + 6, "end", exit_code=143, signal="SIGTERM", hung=True)


def ends(record, second, code=None, signal=None):
    return at(record, second, "end", exit_code=code, signal=signal)


def times(record, rank, second, late=0.0, every=0.1, first=100, n=60, line=20):
    """A rank tells when it began its last collectives."""
    gap = int(every * 1e6)
    return at(
        record, second, "collective-times", pid=pid(rank), rank=rank, world=record.world,
        base=MONO + record.shift + second - 10 + late, times=[["0", first, 0, *[gap] * n]], looks=50,
        step_ends=[[int(second * 10) + n, MONO + record.shift + second - 1] for n in range(3)],
        list=[{"file": SCRIPT, "line": line, "function": "main", "code": "work()", "seen": 40}],
    )  # fmt: skip


def blamed(found):
    first = found.findings[0]
    return first.cause, first.rank, first.host, first.culprit.line if first.culprit else None


# --- one record -----------------------------------------------------------------------------------------------------


def test_the_rank_that_never_came_is_blamed_with_the_line_where_it_stands():
    """Three wait in the exchange of gradients, and the one that is not there stands elsewhere."""
    record = met(job(0, 1, 2, 3), 0, 1, 2, 3)
    for rank in (0, 1, 3):
        stands(record, rank, 30, 51, 14, "all_reduce", 51)
    stands(record, 2, 30, 50, 33, code="wait_for_file()")

    found = verdict(stalled(record, 0, 33, 14))

    assert blamed(found) == ("hang.collective", 2, "node0", 33)
    assert "rank 2 never came to all_reduce() #51" in found.findings[0].claim


def test_of_ranks_in_other_operations_the_minority_is_blamed():
    """Same number, other operation."""
    record = met(job(0, 1, 2), 0, 1, 2)
    for rank, op, line in ((0, "all_reduce", 14), (1, "all_gather", 15), (2, "all_reduce", 14)):
        stands(record, rank, 30, 51, line, op, 51)

    found = verdict(stalled(record, 0, 33, 14))

    assert blamed(found) == ("hang.collective", 1, "node0", 15)


def test_of_ranks_with_other_shapes_the_minority_is_blamed():
    """Same operation and number, tensors of another size."""
    record = met(job(0, 1, 2), 0, 1, 2)
    for rank, sizes in ((0, "[[8]]"), (1, "[[8]]"), (2, "[[9]]")):
        stands(record, rank, 30, 51, 14, "all_reduce", 51, sizes)

    assert blamed(verdict(stalled(record, 0, 33, 14)))[:2] == ("hang.collective", 2)


def test_no_rank_is_blamed_where_all_wait_in_the_same_collective():
    """Then the network or a device does not answer."""
    record = met(job(0, 1), 0, 1)
    for rank in (0, 1):
        stands(record, rank, 30, 51, 14, "all_reduce", 51)

    found = verdict(stalled(record, 0, 33, 14))

    assert found.findings[0].rank is None
    assert "the network or a device" in found.findings[0].claim


def test_an_error_of_a_rank_stands_before_those_of_its_peers():
    """The peers raised first, since their peer was gone; its own error is the cause."""
    record = met(job(0, 1), 0, 1)
    exception(record, 20.0, "RuntimeError", LOST, pid=pid(0), line=14)
    exception(record, 20.4, "ValueError", "bad sample", pid=pid(1), line=33)

    found = verdict(ends(record, 21, 1))

    assert blamed(found)[:2] == ("user-error", 1)


def test_a_rank_that_was_killed_stands_before_the_victim_that_torchrun_saw_first():
    """torchrun's first observed failure is a rank whose peer was gone."""
    record = met(job(0, 1), 0, 1)
    exception(record, 20.0, "RuntimeError", LOST, pid=pid(0), line=14)
    record.output = (
        "Failures:\n[1]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 101)\n"
        "Root Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 100)\n"
    )

    found = verdict(ends(record, 21, 1))

    assert (found.ending.kind, found.ending.signal) == ("killed", "SIGKILL")
    assert found.findings[0].rank == 1


def test_ranks_that_came_and_met_nobody_say_who_did_not_come():
    """Two of three stand in init_process_group for half a minute, and then somebody ends it."""
    record = job(0, 1, world=3)
    for rank in (0, 1):
        at(record, 3, "rank-came", pid=pid(rank), rank=rank, world=3, file=SCRIPT, line=9, code="init()")
    at(record, 35, "signal", signal="SIGINT")

    found = verdict(ends(record, 36, 130))

    assert blamed(found)[:2] == ("hang.collective", 2)
    assert "ranks 0 and 1 of 3" in found.findings[0].claim


def test_a_late_start_is_no_finding():
    """The other rank takes half a minute to import, and then they meet."""
    record = job(0, 1)
    at(record, 3, "rank-came", pid=pid(0), rank=0, world=2, file=SCRIPT, line=9)
    at(record, 38, "rank-came", pid=pid(1), rank=1, world=2, file=SCRIPT, line=9)
    for rank in (0, 1):
        at(record, 38.2, "rank-joined", pid=pid(rank), rank=rank, world=2, waited=35.0)
        steps(record, rank, 50, 60)

    assert verdict(ends(record, 61, 0)).healthy


def test_a_rank_whose_peers_have_records_of_their_own_is_not_told_to_correct_its_line():
    """That its peer was gone says nothing of the line on which it noticed."""
    record = met(job(0, world=2), 0)
    exception(record, 20.0, "RuntimeError", LOST, pid=pid(0), line=14)

    found = verdict(ends(record, 21, 1))

    assert causes(found) == ["hang.collective"]
    assert found.findings[0].rank is None
    assert "holter why --job torchrun:abc" in found.findings[0].cures[0].how


def test_that_torchrun_was_asked_to_end_is_no_error():
    """Its SignalException says no more than the signal does."""
    record = met(job(0, 1), 0, 1)
    at(record, 20.0, "signal", signal="SIGTERM", sender="timeout")
    at(
        record,
        20.2,
        "exception",
        pid=1,
        type="SignalException",
        message="Process 1 got signal: 15",
        main=True,
        frames=[],
    )

    found = verdict(ends(record, 21, 1))

    assert found.ending.kind == "killed"
    assert causes(found) == ["external.time-limit"]


MISMATCH = "[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 1452 vs 4. Received data size doesn't match"


def test_of_calls_that_do_not_fit_the_rank_that_had_caught_an_error_is_blamed():
    """gloo aborts whichever rank the data reach; the one that left out a call is the other's peer."""
    record = met(job(0, 1), 0, 1)
    frames = [{"file": SCRIPT, "line": 33, "function": "loss", "code": "table[i]", "user": True}]
    at(record, 19.0, "step-error", pid=pid(1), step=50, type="IndexError", message="out of range", frames=frames)
    exception(record, 20.0, "RuntimeError", LOST, pid=pid(1), line=14)
    record.output = MISMATCH
    at(record, 20.1, "exited", exit_code=None, signal="SIGABRT", core=False)

    found = verdict(record)

    assert blamed(found) == ("hang.collective", 1, "node0", 33)


def test_a_rank_that_left_by_itself_is_blamed_with_the_line_that_called_exit():
    """Its peers only lost it."""
    record = met(job(0, 1), 0, 1)
    for rank, made in ((0, 51), (1, 50)):
        steps(record, rank, made)
    at(record, 20.0, "exit-called", pid=pid(1), status="0", file=SCRIPT, line=40, function="main", code="sys.exit(0)")
    at(record, 20.5, "process-gone", pid=pid(1), role="trainer")
    exception(record, 20.6, "RuntimeError", LOST, pid=pid(0), line=14)

    found = verdict(ends(record, 22, 1))

    assert blamed(found)[1:] == (1, "node0", 40)


def test_a_rank_on_another_machine_that_told_where_it_stands_is_blamed():
    """Through the job's own store, so that the record of each machine has the same verdict."""
    record = met(job(0, world=2), 0)
    stands(record, 0, 30, 51, 14, "all_reduce", 51)
    told = {"rank": 1, "host": "node1", "begun": 50, "stands": True, "file": SCRIPT, "line": 33, "code": "sleep()"}
    at(record, 31, "peers", pid=pid(0), rank=0, world=2, list=[told], silent=[])

    found = verdict(stalled(record, 0, 33, 14))

    assert blamed(found) == ("hang.collective", 1, "node1", 33)


# --- who is late ----------------------------------------------------------------------------------------------------


def test_a_rank_that_begins_every_collective_last_is_named_with_its_lateness_and_line():
    """All steps take equally long, and only when each began tells."""
    record = met(job(0, 1, 2), 0, 1, 2)
    for second in (20, 30, 45):
        for rank in (0, 1, 2):
            times(record, rank, second, late=0.04 if rank == 1 else 0.0, line=33 if rank == 1 else 20)

    found = verdict(ends(record, 60, 0))

    assert blamed(found) == ("straggler.rank", 1, "node0", 33)
    assert "40 ms after the others" in found.findings[0].claim
    assert found.findings[0].grade == "established"


@pytest.mark.parametrize(
    "late",
    [
        {20: (0, 0.04), 30: (1, 0.04), 45: (2, 0.04)},  # now one, now another: their batches differ
        {20: (1, 0.009), 30: (1, 0.009), 45: (1, 0.009)},  # a tenth of a step
        {20: (0, 0.04)},  # an evaluation
    ],
    ids=["in turns", "jitter", "once"],
)
def test_no_rank_is_accused_of_what_is_no_straggler(late):
    """Ranks that take turns, a little jitter, and one that was late once."""
    record = met(job(0, 1, 2), 0, 1, 2)
    for second in (20, 30, 45):
        slow, by = late.get(second, (0, 0.0))
        for rank in (0, 1, 2):
            times(record, rank, second, late=by if rank == slow else 0.0)

    assert verdict(ends(record, 60, 0)).healthy


# --- several records ------------------------------------------------------------------------------------------------


def two(**more):
    first = met(job(0, run="r-0001", world=2), 0)
    second = met(job(1, run="r-0002", world=2, host="node1", shift=3600.0, **more), 1)
    for record, rank in ((first, 0), (second, 1)):
        steps(record, rank, 50)
    return first, second


def test_two_records_give_one_verdict_with_the_guilty_rank_and_its_host():
    """One waits, the other stands elsewhere; by itself neither record could tell."""
    first, second = two()
    stands(first, 0, 30, 51, 14, "all_reduce", 51)
    stands(second, 1, 30, 50, 33, code="sleep()")
    stalled(first, 0, 33, 14)
    stalled(second, 1, 33, 33)

    found = job_verdict([first, second])

    assert blamed(found.verdict) == ("hang.collective", 1, "node1", 33)
    assert [one["host"] for one in found.verdict.run["job"]["records"]] == ["node0", "node1"]
    assert job_verdict([second, first]).verdict.findings == found.verdict.findings


def test_over_several_records_the_first_death_with_a_cause_of_its_own_counts():
    """The other rank's record tells only that its peer was gone."""
    first, second = two()
    exception(first, 20.0, "RuntimeError", LOST, pid=pid(0), line=14)
    ends(first, 21, 1)
    exception(second, 3620.4, "ValueError", "bad sample", pid=pid(1), line=33)
    ends(second, 22, 1)

    found = job_verdict([first, second]).verdict

    assert causes(found) == ["user-error"]
    assert blamed(found)[1:3] == (1, "node1")


def test_clocks_an_hour_apart_are_aligned_on_the_steps():
    """Steps end together on all ranks; the wall clocks are not asked."""
    first, second = two()
    for at_second in (20, 30, 45):
        times(first, 0, at_second)
        times(second, 1, at_second, late=0.05, line=33)
    for record in (first, second):
        ends(record, 60, 0)

    found = job_verdict([first, second])

    assert blamed(found.verdict) == ("straggler.rank", 1, "node1", 33)
    assert "50 ms after" in found.verdict.findings[0].claim


def test_half_a_jobs_records_give_a_verdict_on_what_is_there():
    """It is said which ranks have none, and that another version recorded one."""
    first = met(job(0, world=4), 0)
    second = met(job(1, run="r-0002", world=4, host="node1", holter="0.0.9"), 1)
    for record in (first, second):
        ends(record, 60, 0)

    notes = job_verdict([first, second]).notes

    assert any("no record of ranks 2 and 3 of 4" in note for note in notes)
    assert any("0.0.9, 0.1.0" in note for note in notes)


def test_records_of_another_job_and_older_ones_of_a_rank_are_left_out():
    """Two jobs in one home, and a rank that was started twice."""
    first, second = two()
    other = met(job(0, run="r-0003", key="torchrun:other"), 0)
    old = met(job(1, run="r-0000", world=2, host="node1", started=WALL - 500), 1)
    for record in (first, second, other, old):
        ends(record, 60, 0)

    found = job_verdict([first, second, other, old])

    assert any("r-0003 is of another job" in note for note in found.notes)
    assert found.verdict.run["job"]["ranks"] == [0, 1]


LOOP = """
def main():
    for x, y in loader:
        if x.sum() > 9:
            continue
        loss = step(x, y)
        loss.backward()
    dist.barrier()
"""


def test_a_rank_that_left_out_a_call_is_blamed_with_the_one_line_that_leads_past_it():
    """One waits in backward, the other came to the end of the loop first: the `continue` is where it left one out."""
    record = met(job(0, 1), 0, 1)
    record.sources[SCRIPT] = LOOP.strip().splitlines()
    stands(record, 0, 30, 51, 6, "all_reduce", 51, sizes="[[900]]", code="loss.backward()")
    stands(record, 1, 30, 51, 7, "all_reduce", 51, sizes="[[1]]", code="dist.barrier()")

    found = verdict(stalled(record, 0, 33, 6))

    assert blamed(found) == ("hang.collective", 1, "node0", 4)
    assert "the one way past train.py:6" in found.findings[0].claim


def test_of_two_ranks_in_other_calls_none_is_accused_where_nothing_tells_which_went_astray():
    """Both places are told, and no rank: to blame one would be a guess."""
    record = met(job(0, 1), 0, 1)
    record.sources[SCRIPT] = ["def a(x):", "    dist.all_gather(x)", "def b(x):", "    dist.all_reduce(x)"]
    stands(record, 0, 30, 51, 2, "all_gather", 51, code="dist.all_gather(x)")
    stands(record, 1, 30, 51, 4, "all_reduce", 51, code="dist.all_reduce(x)")

    first = verdict(stalled(record, 0, 33, 2)).findings[0]

    assert (first.cause, first.rank) == ("hang.collective", None)
    assert "rank 0 waits in" in first.claim
    assert "rank 1 waits in" in first.claim


def test_a_slow_link_accuses_no_rank():
    """The late one spends its time as the others do, and they run on two machines."""
    first, second = two()
    for at_second in (20, 30, 45):
        times(first, 0, at_second)
        times(second, 1, at_second, late=0.05)
    for record in (first, second):
        ends(record, 60, 0)

    found = job_verdict([first, second]).verdict

    assert causes(found) == ["straggler.network"]
    assert found.findings[0].rank is None


def test_ranks_that_have_not_all_made_a_group_wait_at_the_next_one():
    """`new_group` has to be called by all ranks, those too that are not in it."""
    record = met(job(0, 1, 2), 0, 1, 2)
    for rank, made in ((0, 2), (1, 2), (2, 1)):
        stands(record, rank, 30, 51, 32, code="dist.new_group([0, 1, 2])")
        record.events[-1]["groups"] = made

    found = verdict(stalled(record, 0, 33, 32))

    assert found.findings[0].family == "hang"
