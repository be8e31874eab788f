"""Files of weights with something wrong with them: truncated, flipped, bloated, nested and hostile.

Every case is (what was done, function that writes it into a folder and returns the path to open).
``python -m tests.fuzz.damaged COUNT SEED FOLDER`` opens COUNT of them and prints what happened as JSON.
"""

import collections
import functools
import io
import json
import os
import pickle
import random
import struct
import sys
import tracemalloc
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save, save_file

PROOF = "code_was_run"
"""The file that a payload makes in the working directory if it is run."""


class Payload:
    """Unpickles by calling ``call(*arguments)``."""

    def __init__(self, call, *arguments):
        self.reduced = (call, arguments)

    def __reduce__(self):
        return self.reduced


def hostile_objects():
    """Objects whose unpickling runs code or takes any amount of memory."""
    return [
        Payload(os.system, f"touch {PROOF}"),
        Payload(eval, f"open({PROOF!r}, 'w')"),
        Payload(exec, f"open({PROOF!r}, 'w')"),
        Payload(open, PROOF, "w"),
        Payload(os.mkdir, PROOF),
        Payload(bytearray, 2**33),
        {"model": {"a": torch.ones(2), "b": Payload(os.mkdir, PROOF)}},
        collections.OrderedDict(a=torch.ones(2), b=Payload(os.system, f"touch {PROOF}")),
    ]


def tensors():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(48, 64, generator=generator)
    return {
        "h.0.weight": matrix, "h.0.bias": torch.zeros(48), "h.1.weight": matrix.bfloat16(),
        "h.2.weight": matrix.half(), "h.3.weight": matrix.to(torch.float8_e4m3fn),
        "h.3.weight_scale": torch.ones(48, 1), "steps": torch.tensor(3), "empty": torch.zeros(0, 5),
    }  # fmt: skip


def saved_torch(value, **options):
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def base_files():
    """Good files, by the suffix they would have."""
    state = tensors()
    state["tied.weight"] = state["h.0.weight"]
    plain = {k: v for k, v in state.items() if k != "tied.weight"}
    return [
        (".safetensors", save(plain)),
        (".pt", saved_torch(state)),
        (".pt", saved_torch({"model": state, "epoch": 3, "optimizer": {"state": {}}})),
        (".bin", saved_torch(state, _use_new_zipfile_serialization=False)),
        (".pkl", pickle.dumps({"weights": [1.0] * 200})),
    ]


# --- what is done to a good file


def truncated(content, rng):
    return content[: rng.randrange(len(content))]


def flipped(content, rng):
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        # half of the flips where the structure lies: at the start and at the end
        reach = len(changed) if rng.random() < 0.5 else min(len(changed), 900)
        where = rng.randrange(reach)
        changed[where if rng.random() < 0.7 else -1 - where] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwritten(content, rng):
    start, length = rng.randrange(len(content)), rng.randrange(1, 200)
    return content[:start] + rng.randbytes(length) + content[start + length :]


def spliced(content, rng):
    start, stop = sorted(rng.randrange(len(content)) for _ in range(2))
    return (
        content[:start] + content[stop:] if rng.random() < 0.5 else content[:stop] + content[start:]
    )


def huge_header(content, rng):
    length = rng.choice(
        [2**63, 2**64 - 1, 2**40, len(content), len(content) * 2, 100_000_001, 0, 1, 7]
    )
    return struct.pack("<Q", length % 2**64) + content[8:]


def wrong_dtype(content, rng):
    pairs = [(b'"F32"', b'"F64"'), (b'"BF16"', b'"F32"'), (b'"F16"', b'"I64"'), (b'"F32"', b'"F4"'),
             (b"FloatStorage", b"DoubleStorage"), (b"HalfStorage", b"LongStorage"),
             (b"FloatStorage", b"NoneStorage")]  # fmt: skip
    old, new = rng.choice(pairs)
    return content.replace(old, new, 1)


def wrong_numbers(content, rng):
    """Another shape or offset in the header of a safetensors file, its length kept right."""
    length = int.from_bytes(content[:8], "little")
    if not 0 < length < len(content):
        return flipped(content, rng)
    try:
        header = json.loads(content[8 : 8 + length])
    except ValueError:
        return flipped(content, rng)
    tensor = header[rng.choice([k for k in header if k != "__metadata__"])]
    huge = rng.choice([-1, 0, 1, 2**31, 2**62, 2**63, 2**64, 10**30, 1.5, None, "x", [1], {}])
    key = rng.choice(["shape", "data_offsets", "dtype"])
    if isinstance(tensor[key], list) and tensor[key] and rng.random() < 0.8:
        tensor[key][rng.randrange(len(tensor[key]))] = huge
    else:
        tensor[key] = huge
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


DAMAGES = [
    truncated,
    flipped,
    flipped,
    overwritten,
    spliced,
    huge_header,
    wrong_dtype,
    wrong_numbers,
]


# --- what is wrong from the start


@functools.cache
def many_entries():
    """A header of 1.2 MB that lists 20,000 empty tensors."""
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return json.dumps({f"t{i}": empty for i in range(20_000)}).encode()


@functools.cache
def bomb():
    """An archive as torch writes them, with a record that unpacks to 32 MiB: more than the allowance of 16."""
    stream = io.BytesIO(saved_torch({"a": torch.ones(3)}))
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data/9", bytes(2**25))
    return stream.getvalue()


def made_up(rng):
    nested = rng.choice([b"[" * 40_000, b'{"a":' * 40_000, b"{" + b'"a":1,' * 9_000])
    entries = many_entries()
    return rng.choice(
        [
            b"",
            b"\0" * rng.randrange(1, 40),
            rng.randbytes(rng.randrange(1, 4000)),
            struct.pack("<Q", len(nested)) + nested,
            struct.pack("<Q", len(entries)) + entries,
            b"PK\x03\x04" + rng.randbytes(300),
            b"PK\x05\x06" + bytes(18),
            b"\x80\x02" + rng.randbytes(300),
            b"\x80\x04]" + b"]" * 3000 + b".",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
            b"GGUF" + rng.randbytes(60),
        ]
    )


def hostile(rng):
    payload = rng.choice(hostile_objects())
    protocol = rng.choice([2, 3, 4, 5])
    if rng.random() < 0.3:
        return pickle.dumps(payload, protocol=rng.choice([0, 1, protocol]))
    return saved_torch(
        payload, pickle_protocol=protocol, _use_new_zipfile_serialization=rng.random() < 0.8
    )


def archive(rng):
    """Zip archives as torch writes them, with one thing that it never does."""
    good = saved_torch({"a": torch.ones(3)})
    with zipfile.ZipFile(io.BytesIO(good)) as file:
        records = {name: file.read(name) for name in file.namelist()}
    kind = rng.choice(["bomb", "twice", "no pickle", "script", "huge storage", "stride 0"])
    stream = io.BytesIO()
    if kind == "bomb":
        return bomb()
    if kind == "stride 0":
        return saved_torch({"a": torch.ones(1).expand(2**20, 2**20)})
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in records.items():
            if kind == "no pickle" and name.endswith("data.pkl"):
                continue
            if kind == "huge storage" and name.endswith("data.pkl"):
                content = content.replace(b"K\x03tq", b"J\xff\xff\xff\x7ftq")
            file.writestr(name, content)
        if kind == "twice":
            file.writestr("other/data.pkl", records["archive/data.pkl"])
        if kind == "script":
            file.writestr("archive/constants.pkl", b"\x80\x02).")
    return stream.getvalue()


def folder(rng, where):
    """Write a Hugging Face folder with something wrong with it."""
    state = tensors()
    shards = {
        "a.safetensors": dict(list(state.items())[:3]),
        "b.safetensors": dict(list(state.items())[3:]),
    }
    names = {name: shard for shard, part in shards.items() for name in part}
    kind = rng.choice(["outside", "absolute", "missing", "not a map", "damaged", "deep", "nested", "empty",
                       "index", "config", "number"])  # fmt: skip
    where = where / "inner" / "more" if kind == "nested" else where
    where.mkdir(parents=True, exist_ok=True)
    for name, part in shards.items():
        save_file(part, where / name)
    if kind == "damaged":
        file = where / "b.safetensors"
        file.write_bytes(rng.choice(DAMAGES)(file.read_bytes(), rng))
    names |= {"outside": {"x": "../a.safetensors"}, "absolute": {"x": "/etc/passwd"},
              "missing": {"x": "c.safetensors"}, "number": {"x": 3}}.get(kind, {})  # fmt: skip
    text = json.dumps({"weight_map": list(names) if kind == "not a map" else names}).encode()
    text = flipped(text, rng) if kind == "index" else b"[" * 50_000 if kind == "deep" else text
    (where / "model.safetensors.index.json").write_bytes(b"" if kind == "empty" else text)
    if kind == "config":
        (where / "config.json").write_bytes(rng.randbytes(50))
    return where.parents[1] if kind == "nested" else where


def damaged(count, seed, where):
    """Yield (what was done, path) ``count`` times; a path is rewritten once the next is asked for."""
    rng = random.Random(seed)
    bases = base_files()
    for number in range(count):
        draw = rng.random()
        if draw < 0.06:
            yield "folder", folder(rng, where / f"folder-{number}")
            continue
        if draw < 0.72:
            suffix, content = rng.choice(bases)
            damage = rng.choice(DAMAGES)
            kind, content = f"{damage.__name__}{suffix}", damage(content, rng)
        else:
            maker = rng.choice([made_up, hostile, archive])
            kind, suffix, content = (
                maker.__name__,
                rng.choice([".safetensors", ".pt", ".bin"]),
                maker(rng),
            )
        path = where / f"file{suffix}"
        path.write_bytes(content)
        yield kind, path


# --- opening them, in a process of its own

FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect",
             "os.mkdir", "os.remove", "os.rename", "shutil.rmtree", "ctypes.dlopen")  # fmt: skip


def peak_rss():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def forget_peak():
    Path("/proc/self/clear_refs").write_text("5")


def read_all(path):
    """Open and read everything; return (bytes of the largest tensor read, the error that we raise on purpose)."""
    from triplepoint.errors import CheckpointError
    from triplepoint.weights import open_checkpoint

    largest = 0
    try:
        checkpoint = open_checkpoint(path)
        for name, entry in checkpoint.entries.items():
            largest = max(largest, entry.read_bytes)
            if not entry.unreadable:
                checkpoint.read(name).sum()
    except CheckpointError as error:
        return largest, str(error)
    return largest, None


def size_of(path):
    return (
        sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
        if path.is_dir()
        else path.stat().st_size
    )


def main(count, seed, where):
    where = Path(where)
    os.chdir(where)
    watched, events = [False], []
    sys.addaudithook(
        lambda event, _: events.append(event) if watched[0] and event in FORBIDDEN else None
    )
    (where / "good.pt").write_bytes(base_files()[1][1])
    save_file(tensors(), where / "good.safetensors")
    (
        read_all(where / "good.pt"),
        read_all(where / "good.safetensors"),
    )  # what is imported on first use
    tracemalloc.start()
    told = {"opened": 0, "refused": 0, "raw": [], "code": [], "memory": [], "unclear": []}
    for kind, path in damaged(count, seed, where):
        size, events[:] = size_of(path), []
        tracemalloc.reset_peak()
        forget_peak()
        before, traced = peak_rss(), tracemalloc.get_traced_memory()[0]
        watched[0] = True
        try:
            largest, message = read_all(path)
        except Exception as error:
            told["raw"].append(f"{kind}: {type(error).__name__}: {error}")
            continue
        finally:
            watched[0] = False
        told["opened" if message is None else "refused"] += 1
        if message is not None and len(message.strip().split("\n")) != 2:
            told["unclear"].append(f"{kind}: {message}")
        if events or (where / PROOF).exists():
            told["code"].append(f"{kind}: {events}")
        grown, allocated = peak_rss() - before, tracemalloc.get_traced_memory()[1] - traced
        # what importing, caching and page rounding take whatever the file: 256 KiB traced, 16 MiB resident
        if allocated > 2 * size + 2**18 or grown > 2 * size + largest + 2**24:
            told["memory"].append(f"{kind}: {size} bytes, traced {allocated}, resident {grown}")
    print(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
