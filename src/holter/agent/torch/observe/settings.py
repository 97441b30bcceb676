"""What bears on PyTorch's pace and is not seen from outside: threads of the trainer, facts of its loaders."""

_TOLD = 5


class Settings:
    """Tells how many threads PyTorch computes with, once and when it changes."""

    def __init__(self, agent, torch):
        self.agent = agent
        self.torch = torch
        self.known = None
        self.told = 0

    def tell(self):
        """After a step, when the pools exist: asking earlier would set them up."""
        threads = self.torch.get_num_threads(), self.torch.get_num_interop_threads()
        if threads != self.known and self.told < _TOLD:
            self.known = threads
            self.told += 1
            self.agent.say("settings", framework="torch", intra_op=threads[0], inter_op=threads[1])


def loader_facts(loader):
    """What a DataLoader was made with, as far as it bears on its pace."""
    names = ("num_workers", "batch_size", "prefetch_factor", "pin_memory", "persistent_workers")
    facts = {name: getattr(loader, name, None) for name in names}
    facts["shuffle"] = type(getattr(loader, "sampler", None)).__name__ == "RandomSampler"
    facts["dataset"] = type(getattr(loader, "dataset", None)).__name__
    return {name: value for name, value in facts.items() if isinstance(value, (bool, int, str))}
