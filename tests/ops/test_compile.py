"""Every op compiles into one graph. In a process of its own: the types checked in tests would break the graph."""

import subprocess
import sys

import pytest
import torch

from triplepoint.ops import OPS

CODE = """
import torch
from triplepoint.ops import OPS
for name in NAMES:
    layer, x = OPS[name](6), torch.randn(2, 5, 6)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=BACKEND)
    torch.testing.assert_close(compiled(x), layer(x))
    print(name, flush=True)
"""


def compiled(names, backend):
    """The names of the ops that compile, and what was said of the first that does not."""
    code = CODE.replace("BACKEND", repr(backend)).replace("NAMES", repr(list(names)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.split(), done.stderr[-2000:]


def test_every_op_compiles_into_one_graph():
    names, why = compiled(OPS, "eager")
    assert names == list(OPS), why


@pytest.mark.slow
def test_dyt_compiles_to_machine_code():
    names, why = compiled(["dyt"], "inductor")
    assert names == ["dyt"], why


def test_the_test_would_notice_a_broken_graph():
    def broken(x):
        print("a side effect that no graph holds", x.sum().item())
        return x

    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(broken, fullgraph=True, backend="eager")(torch.ones(1))
