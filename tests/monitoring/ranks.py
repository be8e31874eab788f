"""What each of two processes does in test_ranks: a monitored run under DDP, and one under FSDP2."""

import dataclasses
import pathlib
import sys

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard

from triplepoint import Monitor
from triplepoint.ops import DyT

METRICS = ("saturation", "input_rms", "activation_rank", "prediction_kl", "alpha")


class Net(nn.Module):
    """A net with an op, a norm and a branch that only some ranks take."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), DyT(4, alpha=1.0), nn.Linear(4, 4))
        self.norm, self.branch = nn.LayerNorm(4), nn.LayerNorm(4)

    def forward(self, x, *, branch=False):
        """Return logits."""
        x = self.norm(self.body(x))
        return (
            self.branch(x)
            if branch
            else x + 0 * self.branch.weight.sum() + 0 * self.branch.bias.sum()
        )


def build():
    """Return the same net in every process."""
    torch.manual_seed(0)
    return Net()


def batch_of(rank):
    """Return a batch of its own size for each rank."""
    generator = torch.Generator().manual_seed(rank)
    return 3 * torch.randn(2 + rank, 4, generator=generator)


def watch(model, batches, *, branches, steps=3, every=2):
    """Train with plain SGD on the mean gradient; return the records as rows."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, METRICS, every=every) as monitor:
        for step in range(1, steps + 1):
            logits = [model(x, branch=b) for x, b in zip(batches, branches, strict=True)]
            (sum(z.square().mean() for z in logits) / len(batches)).backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.observe(step, logits=torch.cat(logits) if monitor.is_sampling else None)
    return [dataclasses.asdict(record) for record in monitor.collect()]


def main(rank, folder):
    """Write what this rank recorded."""
    store = distributed.FileStore(str(folder / "store"), 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.set_num_threads(1)
    mine = {"batches": [batch_of(rank)], "branches": [rank == 1]}
    found = {"ddp": watch(nn.parallel.DistributedDataParallel(build()), **mine)}
    sharded = build()
    mesh = distributed.init_device_mesh("cpu", (2,))
    fully_shard(sharded.body[1], mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    found["fsdp2"] = watch(sharded, **mine)
    torch.save(found, folder / f"{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
