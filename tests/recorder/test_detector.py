"""A silence is suspicious when it is far longer than any before it and nothing is at work; look-alikes are not."""

from __future__ import annotations

from typing import Any

import pytest

from holter.recorder.hang.detector import Activity, Suspicion, Watch, long_by_name


class Run:
    """A run on a clock that is set by hand: looks once a second, as the recorder does."""

    def __init__(self, pids: tuple[int, ...] = (7,)) -> None:
        self.watch = Watch()
        self.now = 1000.0
        self.cpu = self.bytes = 0.0
        self.cores = self.rate = 0.0
        self.known = True  # whether the tree's activity can be read
        self.agents = {pid: self._agent(pid) for pid in pids}
        self.found: list[tuple[str, Any]] = []

    def _agent(self, pid: int) -> dict[str, Any]:
        return {"pid": pid, "phase": "start", "since": self.now, "activity": 0.0, "step": 0, "planned": 0}

    def look(self) -> None:
        activity = Activity(self.now, self.cpu, self.bytes) if self.known else None
        self.found += self.watch.observe(self.now, [dict(g) for g in self.agents.values()], activity)

    def silence(self, seconds: float) -> None:
        """Nothing happens for a while."""
        for _ in range(round(seconds)):
            self.now += 1.0
            self.cpu += self.cores
            self.bytes += self.rate
            self.look()

    def steps(self, count: int, each: float, pid: int = 7) -> None:
        """Steps of a length, looked at once a second or at every step, whichever is rarer."""
        agent = self.agents[pid]
        looked = self.now
        for _ in range(count):
            self.now += each
            self.cpu += each
            agent.update(step=agent["step"] + 1, since=self.now, phase="other")
            while self.now - looked >= 1.0:
                looked = max(looked + 1.0, self.now - each) if each < 1.0 else self.now
                self.look()
        self.look()

    def enter(self, phase: str, pid: int = 7) -> None:
        self.now += 0.001
        self.agents[pid].update(phase=phase, since=self.now)
        self.look()

    def suspected_after(self, most: float, pid: int = 7) -> float | None:
        """How many seconds of silence it takes; None when it takes more than `most`."""
        begun = self.now
        while self.now - begun < most:
            self.silence(1)
            if any(what == "suspect" and s.pid == pid for what, s in self.found):
                return round(self.now - begun)
        return None

    @property
    def suspicions(self) -> list[Suspicion]:
        return [detail for what, detail in self.found if what == "suspect"]


def training(each: float = 0.1, count: int = 300) -> Run:
    run = Run()
    run.look()
    run.steps(count, each)
    return run


@pytest.mark.parametrize("phase", ["data", "forward", "backward", "optimizer", "other"])
def test_a_block_after_short_steps_is_suspected_within_ten_seconds(phase: str) -> None:
    """Whatever part of a step it blocks in."""
    run = training()
    run.enter(phase)

    assert run.suspected_after(60) in (9.0, 10.0)
    found = run.suspicions[0]
    assert (found.pid, found.phase, found.step, found.cpu) == (7, phase, 300, 0.0)
    assert "0.1 s" in found.learned


@pytest.mark.parametrize("phase", ["validation", "checkpoint", "compile"])
def test_a_minute_of_what_is_long_by_nature_is_no_hang(phase: str) -> None:
    """Even with an idle CPU, as when a network disk is written to; forever is one all the same."""
    run = training()
    run.enter(phase)
    run.silence(60)
    assert not run.suspicions
    run.steps(1, 0.1)
    run.enter(phase)

    assert run.suspected_after(3600) is not None


def test_a_first_step_of_a_minute_is_no_hang() -> None:
    """Neither before it nor in it; and it teaches nothing about the steps after it."""
    run = Run()
    run.look()
    run.silence(60)
    run.enter("forward")
    run.silence(60)
    assert not run.suspicions
    run.steps(100, 0.1)

    assert run.suspected_after(60) in (9.0, 10.0)


def test_a_busy_tree_is_no_hang_for_ten_minutes() -> None:
    """A fifth of a core is at work; an idle background thread's few per cent are not."""
    run = training()
    run.cores = 0.2
    assert run.suspected_after(1000) == pytest.approx(600, abs=2)
    assert "busy" in run.suspicions[0].learned
    idle = training()
    idle.cores = 0.05

    assert idle.suspected_after(60) in (9.0, 10.0)


def test_bytes_that_move_are_no_hang() -> None:
    """A copy of a data set at a megabyte a second; a log of a few kilobytes is no work."""
    run = training()
    run.rate = 1e6
    assert run.suspected_after(300) is None
    idle = training()
    idle.rate = 5e3

    assert idle.suspected_after(60) in (9.0, 10.0)


def test_what_the_tree_does_must_be_known() -> None:
    """Without any reading of the tree a silence may be work: it gets the time of a busy one."""
    run = training()
    run.known = False
    run.watch.suspended(run.now)

    assert run.suspected_after(300) is None
    assert run.suspected_after(1000) is not None


def test_a_tree_that_is_read_rarely_is_judged_by_what_there_is() -> None:
    """A large tree is read every four seconds: busy is still busy, and idle idle."""
    for cores, expected in ((1.0, None), (0.0, 10.0)):
        run = training()
        run.cores = cores
        begun = run.now
        for second in range(60):
            run.known = second % 4 == 0
            run.silence(1)
            if run.suspicions:
                break
        if expected is None:
            assert not run.suspicions
        else:
            assert run.now - begun == pytest.approx(expected, abs=3)


def test_thresholds_are_learned_from_the_run_itself() -> None:
    """Steps of five seconds need forty of silence; one long pause is remembered, in its own phase only."""
    run = training(each=5.0, count=20)
    assert run.suspected_after(100) == pytest.approx(40, abs=2)
    paused = training()
    paused.enter("validation")
    paused.silence(30)
    paused.steps(10, 0.1)

    assert paused.suspected_after(60) in (9.0, 10.0)


def test_looks_that_are_far_apart_teach_nothing_of_the_steps_between_them() -> None:
    """A recorder that was held up for four seconds while forty steps passed has seen no silence of four seconds."""
    run = training()
    run.now += 4.0
    run.agents[7].update(step=340, since=run.now)
    run.look()

    assert run.suspected_after(60) in (9.0, 10.0)


def test_a_silence_that_ends_before_it_is_told_teaches() -> None:
    """Eight seconds now and then: the next one is given eight times that."""
    run = training()
    run.silence(8)
    run.steps(10, 0.1)

    assert run.suspected_after(100) == pytest.approx(64, abs=3)


def test_a_told_silence_that_ends_is_over_and_teaches_nothing() -> None:
    """It is told once, its end is told with its length, and the next one is found as fast as the first."""
    run = training()
    assert run.suspected_after(60) is not None
    run.watch.reported(7)
    run.found.clear()
    run.silence(300)
    assert run.found == []
    run.steps(1, 0.1)
    ((what, (pid, lasted)),) = run.found
    assert (what, pid, lasted) == ("over", 7, pytest.approx(310, abs=2))
    run.found.clear()

    assert run.suspected_after(60) in (9.0, 10.0)


def test_a_silence_that_was_no_hang_is_looked_at_again_later() -> None:
    """The stacks moved: half as long again, and never sooner than nine seconds."""
    run = training()
    run.suspected_after(60)
    run.watch.not_a_hang(7, run.now)
    run.found.clear()

    assert run.suspected_after(60) in (9.0, 10.0)


def test_functions_that_take_long_by_name_get_more_time() -> None:
    """As much as a validation gets."""
    run = training()
    run.suspected_after(60)
    run.watch.not_a_hang(7, run.now, 150.0)
    run.found.clear()

    assert run.suspected_after(300) == pytest.approx(140, abs=3)
    assert "its functions take long" in run.suspicions[0].learned


def test_time_in_which_the_run_was_stopped_does_not_count() -> None:
    """A night with the lid closed, or Ctrl-Z: the silence begins anew, and it teaches nothing."""
    run = training()
    run.now += 8 * 3600
    run.watch.suspended(run.now)
    run.look()
    assert not run.suspicions
    assert run.suspected_after(60) == pytest.approx(10, abs=2)
    again = training()
    again.now += 3600
    again.watch.suspended(again.now)
    again.steps(20, 0.1)

    assert again.suspected_after(60) in (9.0, 10.0)


def test_after_the_last_planned_step_there_is_time() -> None:
    """A model that is uploaded, a plot that is shown: ten minutes; one step before that it is a hang."""
    run = training()
    run.agents[7]["planned"] = 300
    assert run.suspected_after(550) is None
    unfinished = training()
    unfinished.agents[7]["planned"] = 301

    assert unfinished.suspected_after(60) in (9.0, 10.0)


def test_signs_of_life_within_a_phase_count() -> None:
    """A validation that reports each batch is alive however long it takes."""
    run = training()
    run.enter("validation")
    for _ in range(200):
        run.silence(5)
        run.agents[7]["activity"] = run.now

    assert not run.suspicions


def test_each_trainer_is_followed_by_itself() -> None:
    """One of two blocks: that one is named, and the other's steps are no sign of its life."""
    run = Run((7, 8))
    run.look()
    for _ in range(50):
        run.steps(1, 0.1, pid=7)
        run.steps(1, 0.1, pid=8)
    for _ in range(20):
        run.steps(10, 0.1, pid=8)
        run.cpu -= 1.0  # its work is left out: the tree is idle

    assert {s.pid for s in run.suspicions} == {7}


def test_a_trainer_that_vanishes_is_forgotten() -> None:
    """Its silence is no hang, a word about it does no harm, and a new one under its number starts afresh."""
    run = training()
    run.silence(8)
    gone = run.agents.pop(7)
    run.silence(60)
    run.watch.reported(7)
    run.watch.not_a_hang(7, run.now)
    assert not run.found
    run.agents[7] = {**gone, "phase": "start", "step": 0, "since": run.now}
    run.silence(60)

    assert not run.suspicions


@pytest.mark.parametrize(
    "names", [["evaluate"], ["run_validation", "main"], ["save_checkpoint"], ["test"], ["do_eval"]]
)
def test_names_that_take_long(names: list[str]) -> None:
    """The user's own words for it."""
    assert long_by_name(names)


@pytest.mark.parametrize(
    "names", [[], ["train"], ["train_and_evaluate"], ["main"], ["latest"], ["fit_test"], ["retrieval"]]
)
def test_names_that_say_nothing(names: list[str]) -> None:
    """A function that also trains, or one that has the letters by chance."""
    assert not long_by_name(names)


def test_a_long_phase_in_which_nothing_moves_is_worth_looks() -> None:
    """Whether anything can end the wait is not seen from here; what may still go on is looked at again, later."""
    run = Run()
    run.look()
    run.silence(40)
    looks = [detail for what, detail in run.found if what == "look"]

    assert looks
    assert looks[0].early
    run.watch.not_a_hang(7, run.now)
    run.found.clear()
    run.silence(15)
    assert not run.found
    run.silence(15)
    assert [what for what, _ in run.found][:1] == ["look"]


@pytest.mark.parametrize("phase", ["start", "validation"])
def test_a_long_phase_that_uses_the_cpu_is_left_alone(phase: str) -> None:
    """An import or a validation that is at work is not even looked at."""
    run = Run() if phase == "start" else training()
    run.enter(phase)
    run.cores = 0.1
    run.silence(100)

    assert not run.found
