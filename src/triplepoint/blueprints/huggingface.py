"""Models of the ``transformers`` library, from a local folder or configuration."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from triplepoint.blueprints._base import (
    AS_IT_IS,
    CONTEXT,
    Blueprint,
    Shape,
    refuse_dropout,
    refuse_images,
)
from triplepoint.blueprints.proportions import Proportions
from triplepoint.errors import ModelError, PlanError
from triplepoint.extras import require
from triplepoint.runs import identity_of, read_json

WIDTH_FIELDS = {
    "width": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "head_size": ("head_dim",),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
}
"""What has to do with the width -> its usual names; ``transformers`` maps others, such as ``n_embd``, to these."""
OTHER_WIDTHS = (
    "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "moe_intermediate_size",
    "shared_expert_intermediate_size", "word_embed_proj_dim",
)  # fmt: skip
"""Fields that are proportional to the width."""


@dataclasses.dataclass(frozen=True)
class HuggingFaceBlueprint(Blueprint):
    """A ``config.json``, with or without weights beside it. Nothing is downloaded, and no code of the folder is run."""

    name: str
    """Path of the folder or of the ``config.json``, absolute."""
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of the configuration that differ from the file's."""

    @property
    def file(self) -> Path:
        """The ``config.json``."""
        path = Path(self.name)
        return path / "config.json" if path.is_dir() else path

    @functools.cached_property
    def config(self) -> Any:
        """The configuration, as ``transformers`` reads it.

        Raises:
            MissingExtraError: If ``transformers`` is not installed.
            ModelError: If it knows no such model.
        """
        transformers = require("transformers", extra="hf")
        values = read_json(self.file)
        if "auto_map" in values and "model_type" not in values:
            raise ModelError(_own_code(self.file))
        try:
            config = transformers.AutoConfig.from_pretrained(
                self.file, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # transformers raises nearly everything here
            raise ModelError(
                f"{self.file} is no configuration that transformers {transformers.__version__} knows: "
                f"{str(error).splitlines()[0]}\nGive a folder with a config.json that names its model_type; a model "
                "with code of its own is given as module:callable."
            ) from error
        foreign = sorted(name for name in self.changes if not hasattr(config, name))
        if foreign:
            raise PlanError(
                f"{self.file} has no {', '.join(foreign)} to choose.\nLeave it out for this model."
            )
        for name, value in self.changes.items():
            setattr(config, name, value)
        return config

    @property
    def identity(self) -> str:
        """Hash of the configuration's values."""
        return identity_of(json.loads(self.config.to_json_string(use_diff=False)))

    @property
    def context(self) -> int:
        """128, or what the model allows where that is less."""
        return min(CONTEXT, getattr(self.config, "max_position_embeddings", CONTEXT) or CONTEXT)

    def build(self, shape: Shape = AS_IT_IS) -> nn.Module:
        """Return the model, newly initialised in float32: the class that the configuration names, else a causal LM."""
        refuse_images(self.name, shape)
        refuse_dropout(self.name, shape, remedy=f"Change it in {self.file}.")
        vocab = getattr(self.config.get_text_config(), "vocab_size", None)
        if None not in (vocab, shape.vocab) and vocab < shape.vocab:
            raise PlanError(
                f"{self.name} has a vocabulary of {vocab}, the data one of {shape.vocab}.\n"
                "Give the model's own tokenizer with --tokenizer, or a larger vocab_size."
            )
        longest = getattr(self.config, "max_position_embeddings", None)
        if None not in (longest, shape.context) and longest < shape.context:
            raise PlanError(
                f"{self.name} takes {longest} tokens at most, {shape.context} are asked for.\nTry --context {longest}."
            )
        try:
            return self._class()._from_config(self.config, dtype=torch.float32)
        except Exception as error:
            raise ModelError(
                f"{self.name} cannot be built: {str(error).splitlines()[0]}\nCorrect its config.json."
            ) from error

    def proportions(self) -> Proportions:
        """Return how its configuration follows its width.

        Raises:
            PlanError: If the configuration has parts of its own, or does not say its width and heads.
        """
        config = self.config
        found = {
            role: next((n for n in names if isinstance(getattr(config, n, None), int)), None)
            for role, names in WIDTH_FIELDS.items()
        }
        if config.get_text_config() is not config or None in (found["width"], found["heads"]):
            raise PlanError(
                f"{self.file} does not say hidden_size and num_attention_heads at its top, so it has no narrower form.\n"
                "Give the config.json of a causal language model, or module:callable with a keyword width."
            )
        values = {role: getattr(config, name) for role, name in found.items() if name}
        return Proportions(
            **{"head_size": values["width"] // values["heads"], **values},
            names={role: name for role, name in found.items() if name},
            others={n: v for n in OTHER_WIDTHS if isinstance(v := getattr(config, n, None), int)},
        )

    def changed(self, changes: Mapping[str, Any]) -> HuggingFaceBlueprint:
        """Return it with these fields changed besides those that are."""
        return dataclasses.replace(self, changes={**self.changes, **changes})

    def trained(self) -> nn.Module | None:
        """Return the model with the folder's weights, in their own dtype."""
        folder, kind = self.file.parent, self._class()
        if self.changes or self.file.name != "config.json" or not _has_weights(folder):
            return None  # weights belong to the config.json beside them
        try:
            model, found = kind.from_pretrained(
                folder, config=self.config, local_files_only=True, dtype="auto",
                output_loading_info=True, ignore_mismatched_sizes=True,
            )  # fmt: skip
        except Exception as error:
            raise ModelError(
                f"The weights in {folder} cannot be read: {str(error).splitlines()[0]}\nDownload them again."
            ) from error
        names = {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
        if names:
            # transformers would leave these as they are at birth, with a warning
            raise ModelError(
                f"The weights in {folder} do not fit its config.json: {len(names)} tensors of {kind.__name__} are "
                f"missing or of another shape, the first {min(names)}.\nDownload both again, or correct the "
                'config.json; its "architectures" names the class. Without weights, give the config.json of a folder '
                "of its own."
            )
        return model

    def _class(self) -> type:
        transformers = require("transformers", extra="hf")
        named = [getattr(transformers, n, None) for n in self.config.architectures or ()]
        known = [cls for cls in named if hasattr(cls, "_from_config")]
        if known:
            return known[0]
        table = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
        if type(self.config) in table:
            return table[type(self.config)]
        raise ModelError(
            f"{self.file} names no architecture, and {type(self.config).__name__} has no causal language model.\n"
            'Add "architectures": ["..."] to it.'
        )

    def told(self) -> dict[str, Any]:
        """Return its description, the configuration in it."""
        return {"kind": "huggingface", "name": self.name, "config": json.loads(self.config.to_json_string())}  # fmt: skip


def _has_weights(folder: Path) -> bool:
    return any(
        name.endswith((".safetensors", ".bin", ".index.json")) for name in os.listdir(folder)
    )


def _own_code(file: Path) -> str:
    return (
        f"{file} has code of its own (auto_map), which is not run from a folder.\n"
        "Give the model as module:callable instead."
    )
