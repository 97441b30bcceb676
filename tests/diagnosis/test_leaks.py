"""Which leak it is: the holder, the models, the workers' copies or the driver, and only one of them for one growth."""

from __future__ import annotations

import pytest
from build import GB, MB, TRAINER, WORKER, causes, memory, ordinary_run, without_memory

from holter.diagnosis.core.doctor import verdict

FILE = "/home/u/train.py"


def growing(seconds=60, top=7.9 * GB, low=1 * GB, killed=True, limit=8 * GB):
    """A run whose memory grows to a top, where the kernel kills it unless it completes."""
    record = without_memory(ordinary_run(seconds=seconds), 0)
    for second in range(seconds):
        memory(record, second, low + second * (top - low) / seconds, limit=limit)
    if killed:
        return memory(record, seconds + 0.2, 1 * MB, oom_kill=1, limit=limit).exit(seconds, 137, "SIGKILL")
    return record.exit(seconds, 0)


def held(record, at, row, rss=None, pid=TRAINER, role="trainer", **more):
    """Add a census with one row, by default one that explains all that memory grew by."""
    full = {"name": "kept", "variable": "kept", "scope": "global", "owner": "", "file": FILE, "type": "list"}
    full |= {"kind": "tensor", "element": "Tensor", "length": 500, "length_before": 50, "bytes_before": 0, **row}
    fields = {"step": at * 10, "step_before": 10, "rss_before": 1 * GB, "rss": rss or 1 * GB + full["bytes"]} | more
    return record.event("held", at, pid=pid, role=role, census=2, list=[full], looked_at=900, all=True, **fields)


def source(record, *lines):
    record.sources[FILE] = list(lines)
    return record


def leak_of(record):
    """The only leak of a verdict."""
    found = verdict(record)
    leaks = [finding for finding in found.findings if finding.family == "leak"]

    assert not found.failed_rules
    assert len(leaks) == 1
    return leaks[0]


def test_losses_with_their_graph_are_named_with_line_and_cure():
    """A list of losses with graphs that is most of the growth is established, and the cure is the line itself."""
    record = source(growing(), "losses = []", "for x in loader:", "    losses.append(loss)")
    found = leak_of(
        held(record, 55, {"name": "losses", "variable": "losses", "bytes": 6 * GB, "graph": True, "shape": []})
    )

    assert (found.cause, found.grade) == ("leak.graph-retained", "established")
    assert (found.culprit.line, found.culprit.code) == (3, "losses.append(loss)")
    assert found.cures[0].how == "- losses.append(loss)\n+ losses.append(loss.item())"
    assert "`losses` (500 entries" in found.claim
    assert "per step" in found.claim


@pytest.mark.parametrize(
    "line",
    [
        "seen.append((loss, model(batch)))",
        'seen.append({"step": step, "loss": total_loss})',
        "seen.append([epoch, self.last_output])",
    ],
)
def test_of_several_things_kept_as_one_nobody_guesses_which_is_a_number(line):
    """What the parts are is not in the record, and a name proves nothing: said in words, with no diff."""
    record = source(growing(), "seen = []", "for x in loader:", "    " + line)
    row = {"name": "seen", "variable": "seen", "bytes": 6 * GB, "graph": True, "shape": [], "element": "tuple"}
    found = leak_of(held(record, 55, row))

    assert found.cause == "leak.graph-retained"
    assert ".item() for a number, .detach() for a tensor" in found.cures[0].title
    assert found.cures[0].how == ""


@pytest.mark.parametrize(("each", "cause"), [(10_000, "leak.tensors-kept"), (80, "leak.native")])
def test_small_tensors_kept_at_each_step_pin_the_heap(each, cause):
    """One of 10 KB a step is the cause of a growth that is many times what they hold; a number a step is not."""
    record = source(growing(), "seen = []", "for x in loader:", "    seen.append(out.detach())")
    row = {"name": "seen", "variable": "seen", "length": 540, "length_before": 0, "bytes": 540 * each, "shape": [256]}
    found = leak_of(held(record, 55, row, rss=7 * GB))

    assert found.cause == cause
    assert ("the C heap can't give those back" in found.claim) is (cause == "leak.tensors-kept")


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["lib = ctypes.CDLL('libdecode.so')", "lib.open()", "frame = lib.decode(path)"], 2),
        (["libc = ctypes.CDLL(None)", "libc.memcpy(a, b, 8)", "a = libc.malloc(8)"], 3),
        (["import ctypes", "a = pool.malloc(8)"], None),
    ],
)
def test_c_code_that_the_script_calls_itself_is_looked_at_first(lines, line):
    """What ctypes opens allocates where Python sees nothing; a method that only has such a name is a Python's."""
    record = source(growing(), *lines).event("guest", 0.5, pid=TRAINER, role="trainer", file=FILE)
    record.event("held", 55, pid=TRAINER, role="trainer", census=2, list=[], looked_at=900, all=True, step=550,
                 step_before=10, rss=7 * GB, rss_before=1 * GB)  # fmt: skip
    record.event("held", 56, pid=TRAINER, role="trainer", census=3, list=[], looked_at=900, all=True, step=560,
                 step_before=10, rss=7 * GB, rss_before=1 * GB)  # fmt: skip
    found = leak_of(record)

    assert found.cause == "leak.native"
    assert (found.culprit.line if found.culprit else None) == line


@pytest.mark.parametrize(
    ("lengths", "grade"),
    [((16, 22, 31, 43, 60), "hypothesis"), ((16, 60, 22, 31, 43), "supported"), ((16, 17, 18, 19, 20), "supported")],
    ids=["a curriculum", "one long sample", "hardly longer"],
)
def test_memory_that_grows_with_the_batches_is_no_leak(lengths, grade):
    """More goes in, and more is taken; what varies without getting larger explains nothing."""
    record = growing(killed=False)
    for n, length in enumerate(lengths):
        record.event("batch", 6 + n * 10, pid=TRAINER, step=1 + n * 100, shapes=[[[16, length], "torch.int64"]])
    record.event("held", 55, pid=TRAINER, role="trainer", census=2, list=[], looked_at=900, all=True, step=550,
                 step_before=10, rss=7 * GB, rss_before=1 * GB)  # fmt: skip
    found = leak_of(record)

    assert (found.cause, found.grade) == ("leak.native", grade)
    assert ("the batches grew" in found.claim) is (grade == "hypothesis")


def test_a_few_tensors_of_many_steps_are_not_what_grew():
    """One kept at every tenth step pins a tenth of what a step frees: too little to be named for it."""
    record = growing()
    row = {"name": "seen", "variable": "seen", "length": 54, "length_before": 0, "bytes": 54 * 10_000, "shape": [256]}

    assert leak_of(held(record, 55, row, rss=7 * GB)).cause == "leak.native"


def test_a_sum_that_is_never_cut_from_its_graph():
    """`total += loss` holds a chain of graphs: the nodes behind it grow, its size does not."""
    record = source(growing(), "def main():", "    for x in loader:", "        total += loss")
    row = {"name": "total", "variable": "total", "scope": "local", "owner": "main", "type": "Tensor", "graph": True}
    row |= {"nodes": 4000, "nodes_before": 200, "length": 1, "length_before": 1, "bytes": 5 * GB, "shape": []}
    found = leak_of(held(record, 55, row))

    assert found.cause == "leak.graph-retained"
    assert found.culprit.line == 3
    assert found.cures[0].how == "- total += loss\n+ total += loss.item()"


def test_of_several_variables_on_one_graph_the_one_that_feeds_itself_is_named():
    """The loss hangs on the same endless graph as the state; the state is what is never cut."""
    record = source(growing(), "for x in loader:", "    h = cell(x, h)", "    loss = h.sum()")
    both = {"scope": "global", "type": "Tensor", "graph": True, "nodes": 4000, "nodes_before": 200, "bytes": 5 * GB}
    rows = [{**both, "name": name, "variable": name, "file": FILE, "length": 1} for name in ("loss", "h")]
    record.event("held", 55, pid=TRAINER, step=550, step_before=10, rss=6 * GB, rss_before=1 * GB, list=rows)

    assert leak_of(record).culprit.code == "h = cell(x, h)"


def test_arrays_that_pile_up_in_an_attribute():
    """An attribute's line is found in its class, not where another class has one of the same name."""
    lines = ["class Other:", "    def f(self):", "        self.outputs.append(1)", "class Net:", "    def step(self):"]
    record = source(growing(), *lines, "        self.outputs.append(out.numpy())")
    row = {"name": "net.outputs", "variable": "outputs", "scope": "attribute", "owner": "Net", "kind": "array"}
    found = leak_of(held(record, 55, {**row, "bytes": 6 * GB}))

    assert (found.cause, found.grade, found.culprit.line) == ("leak.tensors-kept", "established", 6)
    assert "arrays pile up in `net.outputs`" in found.claim


def test_an_array_that_is_joined_to_itself():
    """`seen = torch.cat([seen, out])` is told as one array that gets larger."""
    record = source(growing(), "for x in loader:", "    seen = torch.cat([seen, out])")
    row = {"name": "seen", "variable": "seen", "type": "Tensor", "length": 10**8, "length_before": 10**6}
    found = leak_of(held(record, 55, {**row, "bytes": 6 * GB}))

    assert (found.cause, found.culprit.line) == ("leak.tensors-kept", 2)
    assert "gets larger and larger" in found.claim


def test_a_dict_that_is_looked_up_is_a_cache():
    """A dict under `if key not in cache` is a cache; the same dict without a look is a heap of results."""
    row = {"name": "data.seen", "variable": "seen", "scope": "attribute", "owner": "Data", "type": "dict"}
    row |= {"kind": "array", "bytes": 6 * GB}
    head = ["class Data:", "    def __getitem__(self, i):"]
    cache = source(growing(), *head, "        if i not in self.seen:", "            self.seen[i] = load(i)")
    heap = source(growing(), *head, "        self.seen[i] = load(i)")

    assert leak_of(held(cache, 55, row)).cause == "leak.cache-unbounded"
    assert leak_of(held(heap, 55, row)).cause == "leak.tensors-kept"


def test_an_lru_cache_is_named_by_its_decorator():
    """The culprit is the decorator, and the cure bounds it."""
    record = source(growing(), "@lru_cache(maxsize=None)", "def features(i):", "    return load(i)")
    row = {"name": "features", "variable": "features", "scope": "cache", "type": "lru_cache", "line": 1}
    found = leak_of(held(record, 55, {**row, "bytes": 6 * GB}))

    assert (found.cause, found.culprit.line) == ("leak.cache-unbounded", 1)
    assert "- @lru_cache(maxsize=None)\n+ @lru_cache(maxsize=" in found.cures[0].how


def test_a_holder_of_a_small_part_is_named_but_not_established():
    """A holder of a fifth of the growth is supported, one of a hundredth is not named."""
    some = leak_of(held(growing(), 55, {"bytes": 1.2 * GB}, rss=7 * GB))
    none = leak_of(held(growing(), 55, {"bytes": 0.06 * GB}, rss=7 * GB))

    assert (some.cause, some.grade) == ("leak.tensors-kept", "supported")
    assert none.cause == "leak.native"


@pytest.mark.parametrize(
    ("nodes", "saved", "cause"), [(150, True, "graph-retained"), (150, False, "native"), (20, True, "native")]
)
def test_graphs_that_were_not_weighed_to_their_end_are_named(nodes, saved, cause):
    """A few losses of long validations: of each graph a part was weighed, and the rest hangs on it. A loss whose
    backward was run holds nothing more, and neither does a short graph."""
    row = {"bytes": 0.04 * GB, "length": 9, "length_before": 0, "graph": True, "saved": saved, "nodes": nodes}
    found = leak_of(held(growing(), 55, row, rss=7 * GB))

    assert found.cause == f"leak.{cause}"
    if cause == "graph-retained":
        assert (found.grade, "9 entries, at least 4.4 MB each" in found.claim) == ("supported", True)
        assert "each step" not in found.claim


def test_a_buffer_of_a_module_is_known_by_the_name_that_the_script_gives_it():
    """PyTorch keeps it in a dict of its own; the line assigns an attribute."""
    record = source(
        growing(), "class Net(Module):", "    def forward(self, x):", "        self.bank = cat([x, self.bank])"
    )
    row = {"name": "net._buffers['bank']", "variable": "_buffers", "scope": "attribute", "owner": "Net"}
    row |= {"type": "Tensor", "bytes": 6 * GB, "graph": True, "saved": True, "nodes": 800, "nodes_before": 60}
    found = leak_of(held(record, 55, row))

    assert (found.cause, found.culprit.line) == ("leak.graph-retained", 3)
    assert "`net.bank` is never cut" in found.claim


SUMMED = ["def test(loader):", "    total = 0", "    for x, y in loader:", "        {line}", "    return total"]


@pytest.mark.parametrize(
    ("line", "row", "cause"),
    [
        ("total += loss(net(x), y)", {}, "leak.graph-retained"),
        ("total = total + loss(net(x), y)", {}, "leak.graph-retained"),
        ("total = loss(net(x), y)", {}, "oversize.spike"),
        ("total += loss(net(x), y)", {"saved": False}, "oversize.spike"),
        ("total += loss(net(x), y)", {"nodes": 20}, "oversize.spike"),
        ("total += net(x)", {"shape": [50, 10]}, "oversize.spike"),
    ],
)
def test_a_number_that_is_summed_up_with_its_graph_between_two_steps(line, row, cause):
    """A validation without `no_grad` that ends in the kernel's kill within seconds: no step shows a trend, and of the
    graph only a part is weighed. A loss of one batch, however long its graph, is no sum."""
    record = without_memory(ordinary_run(), 0)
    for second in range(75):
        memory(record, second, 1 * GB if second < 60 else (second - 59) * 0.5 * GB)
    memory(record, 75.2, 1 * MB, oom_kill=1).exit(75, 137, "SIGKILL")
    source(record, *[one.format(line=line) for one in SUMMED])
    held(record, 73, {"name": "total", "variable": "total", "scope": "local", "owner": "test", "type": "Tensor",
                      "kind": "tensor", "bytes": 0.2 * GB, "length": 1, "length_before": 0, "nodes": 600,
                      "shape": [], "graph": True, "saved": True, **row}, rss=6 * GB)  # fmt: skip
    found = verdict(record).findings[0]

    assert found.cause == cause
    if cause == "leak.graph-retained":
        assert (found.grade, found.culprit.line) == ("supported", 4)
        assert "with the autograd graph of each of its terms" in found.claim


def test_growth_that_nothing_explains_says_what_was_ruled_out():
    """With two censuses that found nothing, the finding says so; it names no line."""
    record = growing()
    for at in (20, 55):
        fields = {"step": at, "rss": 2 * GB, "rss_before": 1 * GB, "looked_at": 900, "all": True, "list": []}
        record.event("held", at, pid=TRAINER, **fields)
    found = leak_of(record)

    assert (found.cause, found.grade, found.culprit) == ("leak.native", "supported", None)
    assert any(one.what == "ruled out" for one in found.evidence)


@pytest.mark.parametrize("alive", [True, False])
def test_models_made_anew_on_one_line(alive):
    """Models that grow in number with the memory are the leak, where Python has let them go and Keras has not too."""
    record = growing()
    record.event("adapter", 1, pid=TRAINER, framework="keras", version="3.5", state="on")
    for n in range(1, 12):
        fields = {"what": "model", "name": "Sequential", "file": FILE, "line": 7, "function": "build", "made": n}
        record.event("made", n * 5, pid=TRAINER, code="model = Sequential(layers)", alive=n if alive else 1, **fields)
    found = leak_of(record)

    assert (found.cause, found.culprit.line) == ("leak.model-rebuilt", 7)
    assert found.grade == ("established" if alive else "supported")
    assert "11" in found.claim
    assert "once, before the loop" in found.cures[0].title


def test_optimizers_that_are_gone_are_not_what_grew():
    """A model that is compiled anew in a loop: what was traced with each of them stays, they do not."""
    record = growing()
    for n in range(1, 12):
        fields = {"what": "optimizer", "name": "Adam", "file": FILE, "line": 7, "function": "<module>", "made": n}
        record.event("made", n * 5, pid=TRAINER, code="model.compile(Adam(rate), 'mse')", alive=1, **fields)

    assert leak_of(record).cause == "leak.native"


@pytest.mark.parametrize(("killed", "found"), [(True, ["leak.model-rebuilt"]), (False, [])])
def test_functions_that_are_traced_anew_are_a_leak_where_memory_ended_the_run(killed, found):
    """Else the time that goes into tracing is what there is to say, by a rule of its own."""
    record = growing() if killed else growing(killed=False, top=3 * GB)
    record.event("adapter", 1, pid=TRAINER, framework="tensorflow", version="2.20", state="on")
    for n in range(1, 12):
        fields = {"what": "function", "name": "Function", "file": FILE, "line": 7, "function": "<module>", "made": n}
        record.event("made", n * 5, pid=TRAINER, code="inner = adapter(model)", alive=1, **fields)

    assert [one.cause for one in verdict(record).findings if one.family == "leak"] == found


def test_tapes_that_are_kept_are_told_as_such():
    """What they hold lies in compiled code and can't be weighed: one more of them with each step is enough."""
    record = source(growing(), "class Terms:", "    def register(self, step, tape):", "        self.terms[step] = tape")
    row = {"name": "terms.terms", "variable": "terms", "scope": "attribute", "owner": "Terms", "kind": "tape"}
    found = leak_of(held(record, 55, {**row, "graph": True, "length_before": 5, "bytes": 4 * MB}, rss=7 * GB))

    assert (found.cause, found.grade, found.culprit.line) == ("leak.graph-retained", "supported", 3)
    assert "each GradientTape is kept, with all that it recorded, in `terms.terms`" in found.claim
    assert "let go of the tape" in found.cures[0].title


def test_models_of_pytorch_that_are_gone_may_have_left_their_weights_to_an_optimizer():
    """Where nothing else is known to have grown, and memory goes with their number."""
    record = growing()
    for n in range(1, 12):
        fields = {"what": "model", "name": "Sequential", "file": FILE, "line": 7, "function": "<module>", "made": n}
        record.event("made", n * 5, pid=TRAINER, code="net = build_net()", alive=1, **fields)

    assert leak_of(record).cause == "leak.model-rebuilt"


def test_models_of_pytorch_that_are_gone_are_not_what_grew():
    """A loss function is made anew at each step, and of what it leaves nothing stays: what piles up is the list."""
    lines = ["class Tracker:", "    def __init__(self):", "        self.data = {}", "    def log(self, name, value):"]
    record = source(growing(), *lines, "        self.data[name].append(value)")
    for n in range(1, 12):
        fields = {"what": "model", "name": "NLLLoss", "file": FILE, "line": 7, "function": "<module>", "made": n}
        record.event("made", n * 5, pid=TRAINER, code="train(nn.NLLLoss())", alive=1, **fields)
    row = {"name": "tracker.data['val']", "variable": "data", "scope": "attribute", "owner": "Tracker", "shape": []}
    found = leak_of(held(record, 55, {**row, "graph": True, "bytes": 2.5 * GB}, rss=7 * GB))

    assert (found.cause, found.culprit.line) == ("leak.graph-retained", 5)


@pytest.mark.parametrize(("kept_at", "line"), [(3, 2), (7, 6)])
def test_a_function_that_makes_models_and_keeps_them_is_where_to_look(kept_at, line):
    """What only makes them is asked for by a loop, and that is the line; what keeps them, too, is the line itself."""
    lines = [
        "def session():",
        "    net = Net()",
        "    pass",
        "    return net",
        "for n in range(99):",
        "    x = session()",
        "    pass",
    ]
    lines[kept_at - 1] = lines[kept_at - 1].replace("pass", "sessions.append(net)")
    record = source(growing(), *lines)
    for n in range(1, 12):
        fields = {"what": "model", "name": "Net", "file": FILE, "line": 2, "function": "session", "made": n, "alive": n}
        record.event("made", n * 5, pid=TRAINER, code="net = Net()", **fields)
    row = {"name": "sessions", "variable": "sessions", "kind": "model", "element": "Net", "bytes": 6 * GB}
    found = leak_of(held(record, 55, row))

    assert (found.cause, found.culprit.line) == ("leak.model-rebuilt", line)


KERAS_LOOP = ("import keras", "for fold in range(9):", "    model = build()", "    model.fit(x, y)")


@pytest.mark.parametrize(
    ("lines", "how"),
    [
        (
            KERAS_LOOP,
            "+ model = build()\n+ model_start = model.get_weights()\n  for fold in range(9):\n-     model = build()\n"
            "+     model.set_weights(model_start)",
        ),
        ((*KERAS_LOOP[:2], "    model = build(fold)", KERAS_LOOP[3]), ""),
        ((*KERAS_LOOP[:3], "    model.compile('adam', 'mse')", KERAS_LOOP[3]), ""),
    ],
)
def test_a_model_of_keras_is_built_once_where_every_pass_builds_the_same(lines, how):
    """One that depends on the pass can't be, and one that is compiled anew would leave as much behind."""
    record = source(growing(), *lines)
    record.event("adapter", 1, pid=TRAINER, framework="keras", version="3.5", state="on")
    for n in range(1, 12):
        fields = {"what": "model", "name": "Sequential", "file": FILE, "line": 3, "function": "", "made": n}
        record.event("made", n * 5, pid=TRAINER, code=lines[2].strip(), alive=n, **fields)

    assert leak_of(record).cures[0].how == how


def test_models_that_were_made_before_training_are_no_leak():
    """An ensemble of five, all made at the start, is not what grew."""
    record = growing()
    for n in range(1, 6):
        fields = {"what": "model", "name": "Net", "file": FILE, "line": 7, "function": "build", "made": n, "alive": n}
        record.event("made", n * 0.5, pid=TRAINER, code="nets.append(Net())", **fields)

    assert leak_of(record).cause == "leak.native"


def copying(resident):
    """Workers whose private memory grows, with or without their size."""
    record = growing(killed=False)
    record.events = [event for event in record.events if event["k"] not in ("exited", "end")]
    record.timeline = [line for line in record.timeline if line["k"] != "sample"]
    for second in range(60):
        sizes = {TRAINER: 1 * GB, WORKER: 1 * GB + resident * second, WORKER + 1: 1 * GB + resident * second}
        listed = [{"pid": pid, "name": "python", "rss": rss, "fds": 9, "state": "S"} for pid, rss in sizes.items()]
        memory(record, second, 1 * GB + second * 6.9 * GB / 60, rows=listed)
    memory(record, 60.2, 1 * MB, oom_kill=1).exit(60, 137, "SIGKILL")
    for pid in (WORKER, WORKER + 1):
        record.event("guest", 2, pid=pid, role="worker")
        row = {"name": "dataset.samples", "variable": "samples", "scope": "attribute", "owner": "Rows", "file": FILE}
        row |= {"type": "list", "kind": "object", "element": "dict", "length": 10**6, "bytes": 4 * GB}
        for at, own in ((5, 0.2 * GB), (55, 3.4 * GB)):
            fields = {"step": at, "rss": 1 * GB + resident * at, "rss_before": 1 * GB, "private_before": 0.1 * GB}
            record.event("held", at, pid=pid, role="worker", private=own, list=[row] if at == 5 else [], **fields)
    return source(record, "class Rows:", "    def __init__(self):", "        self.samples = read(path)")


def test_pages_that_workers_copy_are_told_with_the_objects_they_read():
    """Private memory that grows while the size stands still is a copy of the dataset's Python objects."""
    found = leak_of(copying(resident=0))

    assert (found.cause, found.grade) == ("leak.worker-copy", "established")
    assert found.culprit.line == 3
    assert "2 data workers copied" in found.claim
    assert "1,000,000 Python objects" in found.claim


def test_what_the_trainer_held_from_the_start_is_no_growth_of_its_workers():
    """A first census names what is large: that it is more than all that came since shows that it was there before."""
    record = copying(resident=0)
    row = {"name": "data.samples", "variable": "samples", "scope": "attribute", "owner": "Rows", "file": FILE}
    row |= {"type": "list", "kind": "object", "element": "dict", "length": 10**6, "bytes": 4 * GB}
    fields = {"step": 30, "step_before": 1, "rss_before": 1 * GB, "rss": 1.01 * GB}
    record.event("held", 30, pid=TRAINER, role="trainer", census=1, list=[row], **fields)

    assert leak_of(record).cause == "leak.worker-copy"


def test_a_little_that_a_worker_holds_does_not_hide_what_it_copies():
    """A model of some megabytes is most of what the worker's size grew by, and nothing beside the pages it copied."""
    record = copying(resident=0)
    model = {"name": "model._modules", "variable": "_modules", "scope": "attribute", "owner": "Net", "file": FILE}
    model |= {"type": "dict", "kind": "tensor", "element": "Linear", "length": 2, "bytes": 1.3 * MB}
    for event in record.lines("held"):
        event["rss"] += 1.6 * MB
        event["list"].append(model)

    assert leak_of(record).cause == "leak.worker-copy"


def test_workers_that_grow_themselves_copy_nothing():
    """Where the workers' size grows as well, they hold more: no copy is told."""
    assert leak_of(copying(resident=58 * MB)).cause != "leak.worker-copy"


@pytest.mark.parametrize("grows", [True, False])
def test_the_driver_s_memory_on_metal(grows):
    """Footprint and driver grow while the framework's figure is flat; with it growing too it is no driver's."""
    record = growing()
    for second in range(5, 60):
        driver = 1 * GB + second * 0.11 * GB
        line = {"pid": TRAINER, "allocated": 0.8 * GB if grows else driver, "driver": driver}
        record.timeline.append({"k": "device", "m": record.meta["mono"] + second, "t": 0, **line})
    found = leak_of(record)

    assert (found.cause == "leak.driver") is grows
    if grows:
        assert "800 MB" in found.claim


def test_a_buffer_with_a_bound_that_fits_is_no_leak():
    """A deque that is still filling, and has room for all it may hold, is nothing to tell; without a bound it is."""
    row = {"name": "buffer", "variable": "buffer", "type": "deque", "length": 400, "bytes": 2 * GB}
    filling = held(growing(top=3 * GB, killed=False), 55, {**row, "bound": 500})
    endless = held(growing(top=3 * GB, killed=False), 55, row)

    assert causes(verdict(filling)) == []
    assert leak_of(endless).cause == "leak.tensors-kept"


def test_a_buffer_with_a_bound_that_does_not_fit_is_one():
    """A deque whose bound is above the memory there is, is told before it is full."""
    row = {"name": "buffer", "variable": "buffer", "type": "deque", "length": 400, "bytes": 2 * GB, "bound": 5000}

    assert leak_of(held(growing(top=3 * GB, killed=False), 55, row)).cause == "leak.tensors-kept"


def test_a_list_that_the_script_takes_things_out_of_is_no_leak_while_it_fits():
    """`if len(items) < size` bounds it as well as a deque does; when memory ran out all the same, it is told."""
    lines = ["def push(self, x):", "    if len(self.items) < self.size:", "        self.items.append(x)"]
    row = {"name": "replay.items", "variable": "items", "scope": "attribute", "owner": "Replay", "bytes": 2 * GB}
    fits = source(held(growing(top=3 * GB, killed=False), 55, row), *lines)
    died = source(held(growing(), 55, {**row, "bytes": 6 * GB}), *lines)

    assert causes(verdict(fits)) == []
    assert leak_of(died).cause == "leak.tensors-kept"


def test_asking_whether_there_is_enough_bounds_nothing():
    """`if len(memory) > 64: learn()` is how a replay buffer without an end is used, too."""
    lines = ["def add(self, x):", "    self.items.append(x)", "    if len(self.items) > 64:", "        self.learn()"]
    row = {"name": "replay.items", "variable": "items", "scope": "attribute", "owner": "Replay", "bytes": 2 * GB}
    record = source(held(growing(top=3 * GB, killed=False), 55, row), *lines)

    assert leak_of(record).cause == "leak.tensors-kept"


def test_results_that_are_kept_to_the_end_of_a_run_that_fits_are_only_a_guess():
    """A run that completed with room to spare gets no alarm for its list of results; with graphs in it, it does."""
    plain = leak_of(held(growing(top=4 * GB, killed=False), 55, {"bytes": 3 * GB}))
    graph = leak_of(held(growing(top=4 * GB, killed=False), 55, {"bytes": 3 * GB, "graph": True}))

    assert (plain.cause, plain.grade) == ("leak.tensors-kept", "hypothesis")
    assert (graph.cause, graph.grade) == ("leak.graph-retained", "established")


def test_a_cache_of_tf_data_is_named_by_its_call():
    """Growth in the first epoch of a TensorFlow run with `.cache()` and no holder in Python is that cache's."""
    record = source(growing(), "data = (files.map(load)", "        .cache()", "        .prefetch(2))")
    record.event("guest", 0.6, pid=TRAINER, role="trainer", file=FILE)
    record.event("adapter", 1, pid=TRAINER, framework="tensorflow", version="2.18", state="on")
    found = leak_of(record)

    assert (found.cause, found.culprit.line) == ("leak.cache-unbounded", 2)
    assert found.cures[0].how == '- .cache()\n+ .cache("dataset.cache")'


@pytest.mark.parametrize("endless", [True, False])
def test_a_cache_whose_input_never_ends_grows_through_all_epochs(endless):
    """After repeat() no pass is the last, and the cache still grows in the fifth epoch; ahead of it, it is full."""
    calls = ("repeat()", "cache()") if endless else ("cache()", "repeat()")
    lines = [
        "import tensorflow as tf",
        "ds = tf.data.Dataset.from_tensor_slices(x)",
        *(f"ds = ds.{one}" for one in calls),
    ]
    record = source(growing(), *lines)
    record.event("guest", 0.6, pid=TRAINER, role="trainer", file=FILE)
    record.event("adapter", 1, pid=TRAINER, framework="tensorflow", version="2.18", state="on")
    for epoch in range(1, 6):
        record.event("epoch", 5 + 10 * epoch, pid=TRAINER, epoch=epoch, step=epoch * 100)
    found = leak_of(record)

    assert found.cause == ("leak.cache-unbounded" if endless else "leak.native")
    if endless:
        assert (found.culprit.line, "ahead of repeat()" in found.cures[0].title) == (4, True)


def test_a_flat_run_with_a_long_list_is_healthy():
    """What a run holds is not what grows: without growth there is nothing to tell."""
    record = held(ordinary_run(), 55, {"bytes": 1 * GB, "graph": True}, rss=2 * GB).exit(60, 0)

    assert causes(verdict(record)) == []


def test_a_validation_that_keeps_its_graphs_is_a_leak_whatever_its_curve_looks_like():
    """Memory that shoots up in a validation is told by what holds it, not as one step too large."""
    record = source(without_memory(ordinary_run(), 0), "for x in val:", "    outputs.append(model(x))")
    for second in range(60):
        memory(record, second, 2 * GB if second < 55 else (2 + 1.2 * (second - 54)) * GB)
    memory(record, 60.2, 1 * MB, oom_kill=1).exit(60, 137, "SIGKILL")
    row = {"name": "outputs", "variable": "outputs", "graph": True, "shape": [64, 10], "bytes": 5 * GB}
    found = leak_of(held(record, 59, row, rss=7 * GB, step_before=590, rss_before=2 * GB))

    assert (found.cause, found.grade, found.culprit.line) == ("leak.graph-retained", "supported", 2)
    assert "no_grad" in found.cures[0].title
    assert causes(verdict(record)) == ["leak.graph-retained"]


def test_two_lists_in_one_variable_are_weighed_together():
    """Neither of two lists in a dict explains most of the growth, but both do."""
    record = growing()
    base = {"variable": "stats", "scope": "global", "owner": "", "file": FILE, "type": "list", "kind": "tensor"}
    base |= {"length": 500, "length_before": 50, "bytes": 2.4 * GB, "bytes_before": 0}
    rows = [{**base, "name": f"stats['{key}']"} for key in ("grad", "out")]
    record.event("held", 55, pid=TRAINER, step=550, step_before=10, rss=7 * GB, rss_before=1 * GB, list=rows)

    assert leak_of(record).grade == "established"


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_tuple_that_was_seen_once_has_not_been_seen_to_pile_up(seen_before):
    """A tuple never gets longer: the fixed arguments of an object were there from the first, unseen till then."""
    record = without_memory(ordinary_run(seconds=60), 0)
    for second in range(60):
        memory(record, second, 1 * GB if second < 54 else 7.9 * GB, limit=8 * GB)
    memory(record, 60.2, 1 * MB, oom_kill=1, limit=8 * GB).exit(60, 137, "SIGKILL")
    row = {"name": "self._args", "variable": "_args", "scope": "attribute", "owner": "Timer", "type": "tuple"}
    row |= {"bytes": 6 * GB, "length": 4, "length_before": 2 if seen_before else None, "bytes_before": None}
    found = verdict(held(record, 55, row))

    assert any(finding.cause == "leak.tensors-kept" for finding in found.findings) is seen_before
