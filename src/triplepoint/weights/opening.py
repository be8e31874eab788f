"""From a path that a user gives to a :class:`Checkpoint`: files, folders of shards, run folders."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from triplepoint.errors import CheckpointError
from triplepoint.weights.checkpoint import Checkpoint, Read, TensorEntry, distinct, is_bloated
from triplepoint.weights.packed import with_packing
from triplepoint.weights.pickles import refuse_calls
from triplepoint.weights.safetensors_files import Place, list_safetensors
from triplepoint.weights.ties import stored_twice
from triplepoint.weights.torch_files import list_torch

_INDEXES = ("model.safetensors.index.json", "diffusion_pytorch_model.safetensors.index.json",
            "pytorch_model.bin.index.json")  # fmt: skip
_NAMES = ("model.safetensors", "pytorch_model.bin")
"""Names that win where a folder holds several files of weights, best first."""
_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
_STEP = re.compile(r"(?:step|checkpoint)-(\d+)")
_PREFIXES = ("module.", "_orig_mod.")
"""What DistributedDataParallel and torch.compile put before every name."""
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_FOREIGN = {
    b"GGUF": "a GGUF file (llama.cpp)",
    b"\x89HDF": "an HDF5 file (Keras)",
    b"version https://git-lfs": "a Git LFS pointer: the weights themselves were not downloaded",
    _LEGACY: "in torch's format before 1.6, which cannot be mapped",
}
_REMEDY = {
    b"version https://git-lfs": "Run `git lfs pull` in its folder.",
    _LEGACY: "Save it again with a newer torch: torch.save(torch.load(path, weights_only=True), path).",
}


def open_checkpoint(path: str | Path, *, step: int | None = None) -> Checkpoint:
    """List the tensors of a checkpoint without reading them.

    Forms: a safetensors file; a file that ``torch.save`` wrote (``.pt .pth .bin .ckpt``), its weights at the
    top or under ``state_dict``, ``model_state_dict``, ``model`` or ``module``; a Hugging Face folder, sharded
    or not; a run folder with ``checkpoints/step-N`` or ``checkpoint-N``. ``module.`` and ``_orig_mod.`` before
    every name are taken off. Code in a pickle is never run.

    Args:
        path: File or folder.
        step: Which checkpoint of a run folder; by default the last, or ``checkpoints/best`` where that is all.

    Raises:
        CheckpointError: If there is nothing to read, or it is damaged, packed or hostile.
    """
    path = Path(path)
    try:
        _ = os.listdir(path) if os.path.isdir(path) else path.stat()
    except FileNotFoundError as error:
        raise CheckpointError(f"There is no file or folder {path}.\n{_beside(path)}") from error
    except OSError as error:  # too long a name, a link to itself, a folder that may not be read
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror or error}).\nCheck the path and its permissions."
        ) from error
    steps = steps_of(path)
    if steps and not _files_of(path):
        return open_checkpoint(_step_folder(path, steps, step))
    files, config = [path], {}
    if path.is_dir():
        best = path / "checkpoints" / "best"
        files, config = _files_of(path) or _files_of(best), _json_of(path / "config.json")
        if not files:
            raise CheckpointError(_nothing_in(path))
    elif not path.is_file():
        raise CheckpointError(f"There is no file or folder {path}.\n{_beside(path)}")
    return _joined(path, files, config)


def steps_of(path: str | Path) -> dict[int, Path]:
    """Return step -> folder of the checkpoints of a run, in order of the steps; empty where there are none.

    Ours are ``checkpoints/step-000100``; Hugging Face's Trainer writes ``checkpoint-100``.
    """
    if not os.path.isdir(path):
        return {}
    folders = [
        p for pattern in ("checkpoints/step-*", "checkpoint-*") for p in Path(path).glob(pattern)
    ]
    found = {int(m[1]): p for p in folders if (m := _STEP.fullmatch(p.name)) and p.is_dir()}
    return dict(sorted(found.items()))


def _step_folder(path: Path, steps: Mapping[int, Path], step: int | None) -> Path:
    if step is not None and step not in steps:
        raise CheckpointError(
            f"{path} has no checkpoint of step {step}.\nIt has: {', '.join(map(str, steps))}."
        )
    return steps[max(steps) if step is None else step]


def _files_of(folder: Path) -> list[Path]:
    """Return the files of weights in a folder, those of an index first; empty where it has none."""
    if not folder.is_dir():
        return []
    index = next((folder / name for name in _INDEXES if (folder / name).is_file()), None)
    if index is not None:
        return _shards(index)
    named = next((folder / name for name in _NAMES if (folder / name).is_file()), None)
    if named is not None:
        return [named]
    found = sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES and p.is_file())
    safe = [p for p in found if p.suffix == ".safetensors"]
    # what a Trainer leaves beside the weights
    found = safe or [
        p for p in found if not re.match(r"(optimizer|scheduler|training_args|rng_state)", p.name)
    ]
    if len(found) > 1:
        raise CheckpointError(
            f"{folder} holds {len(found)} files of weights and no index: {', '.join(p.name for p in found[:3])}.\n"
            "Give the path of one of them."
        )
    return found


def _shards(index: Path) -> list[Path]:
    weight_map = _json_of(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map.\nDownload or save the folder again.")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        # a shard outside the folder would be somebody else's file
        if Path(name).name != name or "\\" in name or "\0" in name:
            raise CheckpointError(
                f"{index} names a file outside its folder: {name!r}.\nDownload the folder again from its source."
            )
        if not (index.parent / name).is_file():
            raise CheckpointError(
                f"{index} names {name}, which is not there.\nDownload the missing shard."
            )
    return [index.parent / name for name in names]


def _json_of(path: Path) -> dict:
    """Read a JSON object; an empty one where there is no file."""
    if not path.is_file():
        return {}
    try:
        whole = sum(p.stat().st_size for p in path.parent.iterdir() if p.is_file())
        if is_bloated(path.stat().st_size, whole):
            raise ValueError(f"its {path.stat().st_size} bytes are more than the folder can hold")
        value = json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}).\nIt is damaged: download or save it again."
        ) from error
    return value if isinstance(value, dict) else {}


def _nothing_in(folder: Path) -> str:
    below = [p for p in sorted(folder.iterdir()) if p.is_dir() and (_has_weights(p) or steps_of(p))]
    there = ", ".join(sorted(p.name for p in folder.iterdir())[:5]) or "nothing"
    hint = (
        f"Did you mean {below[0]}?"
        if below
        else f"Give a file ({' '.join(_SUFFIXES)}), a Hugging Face folder or a run folder."
    )
    return f"{folder} holds no weights (it holds {there}).\n{hint}"


def _has_weights(folder: Path) -> bool:
    return any(p.suffix in _SUFFIXES for p in folder.iterdir())


def _beside(path: Path) -> str:
    names = sorted(p.name for p in path.parent.iterdir())[:5] if path.parent.is_dir() else []
    return f"In {path.parent} there is: {', '.join(names) or 'nothing'}."


def _joined(path: Path, files: list[Path], config: Mapping[str, object]) -> Checkpoint:
    entries: dict[str, TensorEntry] = {}
    readers: dict[Path, Read] = {}
    places: dict[str, Place] = {}
    left_out: tuple[str, ...] = ()
    for file in files:
        if _is_torch(file):
            listed, readers[file], beside = list_torch(file)
            left_out += beside
        else:
            listed, here = list_safetensors(file)
            readers[file] = lambda name, here=here: here[name].read()
            places = here | places
        entries |= {entry.name: entry for entry in listed if entry.name not in entries}
    entries |= stored_twice(entries, places)
    names = _names(entries)
    entries = {names[n]: _renamed(entry, names) for n, entry in entries.items()}
    return Checkpoint(
        path, with_packing(entries), readers,
        stored_names={shown: stored for stored, shown in names.items() if shown != stored},
        left_out=tuple(map(_printable, left_out)), config=config,
    )  # fmt: skip


def _is_torch(file: Path) -> bool:
    """Return whether the first bytes are those of a torch archive; the name decides nothing."""
    try:
        with file.open("rb") as opened:
            head = opened.read(64)
            if head.startswith(b"PK\x03\x04"):
                return True
            if head[4:9] == b"\0\0\0\0{":
                # the length of a header below 4 GiB, then the header: its first byte may be a pickle's
                return False
            for magic, told in _FOREIGN.items():
                if head.startswith(magic):
                    remedy = _REMEDY.get(
                        magic, "Convert it to safetensors with the tool that made it."
                    )
                    raise CheckpointError(f"{file} is {told}.\n{remedy}")
            if head[:1] == b"\x80" and head[1:2] in b"\x00\x01\x02\x03\x04\x05":
                opened.seek(0)
                refuse_calls(file, opened.read(min(file.stat().st_size, 2**20)))
                raise CheckpointError(
                    f"{file} is a plain pickle, not weights that torch.save wrote.\n"
                    "Save the weights as safetensors, or with torch.save(model.state_dict(), path)."
                )
    except OSError as error:
        raise CheckpointError(
            f"{file} cannot be read ({error.strerror or error}).\nCheck the path and its permissions."
        ) from error
    return False


def _common_prefix(names: Mapping[str, TensorEntry]) -> str:
    prefix = ""
    while names:
        more = next((p for p in _PREFIXES if all(n.startswith(prefix + p) for n in names)), None)
        if more is None:
            break
        prefix += more
    return prefix


def _names(entries: Mapping[str, TensorEntry]) -> dict[str, str]:
    """Return stored name -> name: without a common prefix, in characters that any terminal and file can show."""
    prefix = _common_prefix(entries)
    names: dict[str, str] = {}
    taken: set[str] = set()
    for stored in entries:
        names[stored] = distinct(_printable(stored.removeprefix(prefix)), taken)
        taken.add(names[stored])
    return names


def _printable(name: str) -> str:
    r"""Escape what is not a visible character: ``\x1b`` would steer a terminal, half a surrogate fits no file."""
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return "".join(shown)


def _renamed(entry: TensorEntry, names: Mapping[str, str]) -> TensorEntry:
    tied_to = entry.tied_to and names[entry.tied_to]
    return dataclasses.replace(entry, name=names[entry.name], tied_to=tied_to)
