"""BatchNorm beneath parts of a batch: its running statistics move with each part by as much less as there are parts."""


class SoftNorms:
    """The BatchNorms of the models that are trained."""

    def __init__(self, torch):
        self.kind = torch.nn.modules.batchnorm._BatchNorm
        self.softened = []  # with the momentum that is their own

    def of(self, models):
        alive = [model for ref in models if (model := ref()) is not None]
        return [part for model in alive for part in model.modules() if isinstance(part, self.kind)]

    def soften(self, models, parts):
        """At the first batch of a pass."""
        if not self.softened:
            self.softened = [(norm, norm.momentum) for norm in self.of(models) if norm.momentum is not None]
            for norm, momentum in self.softened:
                norm.momentum = 1.0 - (1.0 - momentum) ** (1.0 / parts)

    def firm(self):
        """When the pass is over: as they were."""
        softened, self.softened = self.softened, []
        for norm, momentum in softened:
            norm.momentum = momentum
