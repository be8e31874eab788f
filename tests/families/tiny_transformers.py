"""Transformers models of two layers and width 16, with the role of each of their norms worked out by hand.

``ROLES`` maps path to role; N stands for a number, and a role with ``!`` for a norm that is refused. The roles are
those of each model's published forward: what a norm's output feeds where it follows the residual stream, or whose
output it takes where it precedes the residual sum.
"""

import torch

TEXT = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 64,
    "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
DECODER = TEXT | {"num_key_value_heads": 2, "head_dim": 8}
BERT = TEXT | {"embedding_size": 16}
GPT = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 64, "n_positions": 32, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
SEQ2SEQ = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 64, "max_position_embeddings": 32, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 64, "decoder_start_token_id": 0}  # fmt: skip
AUDIO = TEXT | {
    "conv_dim": (8, 8), "conv_stride": (2, 2), "conv_kernel": (3, 3), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0, "apply_spec_augment": False,
}  # fmt: skip
IMAGE = TEXT | {"image_size": 16, "patch_size": 8}
WINDOWS = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}  # fmt: skip
STATES = {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 64, "state_size": 4, "num_heads": 4, "head_dim": 8, "n_groups": 1}  # fmt: skip

SETTINGS = {
    **dict.fromkeys(
        ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "olmo", "olmo2", "cohere2",
         "starcoder2", "granite", "glm4", "nemotron"], DECODER),
    "cohere": DECODER | {"use_qk_norm": True},
    "stablelm": DECODER | {"qk_layernorm": True},
    "llama4_text": DECODER | {"num_local_experts": 2},
    "gpt_neox": TEXT,
    "gpt2": GPT,
    "gptj": GPT | {"rotary_dim": 4},
    "falcon": TEXT | {"new_decoder_architecture": True, "num_kv_heads": 2},
    "bloom": {"hidden_size": 16, "n_layer": 2, "n_head": 2, "vocab_size": 64},
    "mpt": {"d_model": 16, "n_layers": 2, "n_heads": 2, "vocab_size": 64, "max_seq_len": 32},
    "opt": TEXT | {"ffn_dim": 32, "word_embed_proj_dim": 16},
    "opt-post-norm": TEXT | {"ffn_dim": 32, "word_embed_proj_dim": 16, "do_layer_norm_before": False},
    **dict.fromkeys(["bert", "albert", "roberta", "electra", "deberta", "roberta-prelayernorm", "fnet"], BERT),
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": 64},
    "squeezebert": BERT,
    "xlnet": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32, "vocab_size": 64},
    **dict.fromkeys(["bart", "marian", "pegasus"], SEQ2SEQ),
    "whisper": SEQ2SEQ | {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 10},
    **dict.fromkeys(["t5", "mt5"], T5),
    **dict.fromkeys(["wav2vec2", "hubert"], AUDIO),
    "wav2vec2-stable": AUDIO | {"do_stable_layer_norm": True, "feat_extract_norm": "layer"},
    **dict.fromkeys(["vit", "deit", "beit", "dinov2", "siglip_vision_model"], IMAGE),
    **dict.fromkeys(["swin", "swinv2"], WINDOWS),
    "clip": {"text_config": TEXT, "vision_config": IMAGE, "projection_dim": 16},
    **dict.fromkeys(["mamba", "mamba2"], STATES),
    "convnext": {"depths": [1, 1], "hidden_sizes": [8, 16], "num_stages": 2},
}  # fmt: skip


def built(name):
    """Build the model with random weights."""
    import transformers

    torch.manual_seed(0)
    kind = {"opt-post-norm": "opt", "wav2vec2-stable": "wav2vec2"}.get(name, name)
    config = transformers.AutoConfig.for_model(kind, **SETTINGS[name])
    return transformers.AutoModel.from_config(config).eval()


def inputs_of(name):
    """Return what its forward takes: two sequences, images or sounds."""
    tokens = torch.arange(12).reshape(2, 6) + 3
    if name in ("vit", "deit", "beit", "dinov2", "siglip_vision_model"):
        return {"pixel_values": torch.randn(2, 3, 16, 16)}
    if name in ("swin", "swinv2", "convnext"):
        return {"pixel_values": torch.randn(2, 3, 32, 32)}
    if name == "clip":
        return {"input_ids": tokens, "pixel_values": torch.randn(2, 3, 16, 16)}
    if name in ("wav2vec2", "hubert", "wav2vec2-stable"):
        return {"input_values": torch.randn(2, 200)}
    if name == "whisper":
        return {"input_features": torch.randn(2, 8, 20), "decoder_input_ids": tokens}
    if name in ("bart", "marian", "pegasus", "t5", "mt5"):
        return {"input_ids": tokens, "decoder_input_ids": tokens}
    return {"input_ids": tokens}


# Llama and what follows its names
_LLAMA = {
    "layers.N.input_layernorm": "pre_attn",
    "layers.N.post_attention_layernorm": "pre_mlp",
    "norm": "final",
}
_QK = {"layers.N.self_attn.q_norm": "qk", "layers.N.self_attn.k_norm": "qk"}
# the same name as Llama's second norm, for what stands behind the attention
_GEMMA2 = {
    "layers.N.input_layernorm": "pre_attn",
    "layers.N.post_attention_layernorm": "post_attn",
    "layers.N.pre_feedforward_layernorm": "pre_mlp",
    "layers.N.post_feedforward_layernorm": "post_mlp",
    "norm": "final",
}
_BERT = {
    "embeddings.LayerNorm": "embed",
    "encoder.layer.N.attention.output.LayerNorm": "post_attn",
    "encoder.layer.N.output.LayerNorm": "post_mlp",
}
_GPT2 = {"h.N.ln_1": "pre_attn", "h.N.ln_2": "pre_mlp", "ln_f": "final"}
_VIT = {
    "layers.N.layernorm_before": "pre_attn",
    "layers.N.layernorm_after": "pre_mlp",
    "layernorm": "final",
}
_CLIP = {"encoder.layers.N.layer_norm1": "pre_attn", "encoder.layers.N.layer_norm2": "pre_mlp"}


def _seq2seq(place):
    """BART's names, which are those of post-norm and pre-norm models alike."""
    return {
        "encoder.layers.N.self_attn_layer_norm": f"{place}_attn",
        "encoder.layers.N.final_layer_norm": f"{place}_mlp",
        "decoder.layers.N.self_attn_layer_norm": f"{place}_attn",
        "decoder.layers.N.encoder_attn_layer_norm": f"{place}_attn",
        "decoder.layers.N.final_layer_norm": f"{place}_mlp",
    }


_T5 = {
    "encoder.block.N.layer.0.layer_norm": "pre_attn",
    "encoder.block.N.layer.1.layer_norm": "pre_mlp",
    "encoder.final_layer_norm": "final",
    "decoder.block.N.layer.0.layer_norm": "pre_attn",
    "decoder.block.N.layer.1.layer_norm": "pre_attn",
    "decoder.block.N.layer.2.layer_norm": "pre_mlp",
    "decoder.final_layer_norm": "final",
}
_WAV2VEC2 = {
    "feature_extractor.conv_layers.N.layer_norm": "embed!",
    "feature_projection.layer_norm": "embed",
    "encoder.layer_norm": "embed",
    "encoder.layers.N.layer_norm": "post_attn",
    "encoder.layers.N.final_layer_norm": "post_mlp",
}

ROLES = {
    **dict.fromkeys(
        ["llama", "mistral", "qwen2", "gemma", "phi3", "olmo", "starcoder2", "granite", "nemotron"],
        _LLAMA,
    ),
    "qwen3": _LLAMA | _QK,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA2 | _QK,
    "phi": {"layers.N.input_layernorm": "pre_attn", "final_layernorm": "final"},
    "olmo2": _QK
    | {
        "layers.N.post_attention_layernorm": "post_attn",
        "layers.N.post_feedforward_layernorm": "post_mlp",
        "norm": "final",
    },
    "cohere": {
        "layers.N.self_attn.q_norm": "qk!",
        "layers.N.self_attn.k_norm": "qk!",
        "layers.N.input_layernorm": "pre_attn",
        "norm": "final",
    },
    "cohere2": {"layers.N.input_layernorm": "pre_attn", "norm": "final"},
    "glm4": _LLAMA
    | {"layers.N.post_self_attn_layernorm": "post_attn", "layers.N.post_mlp_layernorm": "post_mlp"},
    "stablelm": _LLAMA
    | {
        "layers.N.self_attn.q_layernorm.norms.N": "qk",
        "layers.N.self_attn.k_layernorm.norms.N": "qk",
    },
    "llama4_text": _LLAMA | {"layers.N.self_attn.qk_norm": "qk"},
    "gpt_neox": {
        "layers.N.input_layernorm": "pre_attn",
        "layers.N.post_attention_layernorm": "pre_mlp",
        "final_layer_norm": "final",
    },
    "gpt2": _GPT2,
    "gptj": {"h.N.ln_1": "pre_attn", "ln_f": "final"},
    "falcon": {"h.N.ln_attn": "pre_attn", "h.N.ln_mlp": "pre_mlp", "ln_f": "final"},
    "bloom": {
        "word_embeddings_layernorm": "embed",
        "h.N.input_layernorm": "pre_attn",
        "h.N.post_attention_layernorm": "pre_mlp",
        "ln_f": "final",
    },
    "mpt": {"blocks.N.norm_1": "pre_attn", "blocks.N.norm_2": "pre_mlp", "norm_f": "final"},
    "opt": {
        "decoder.layers.N.self_attn_layer_norm": "pre_attn",
        "decoder.layers.N.final_layer_norm": "pre_mlp",
        "decoder.final_layer_norm": "final",
    },
    "opt-post-norm": {
        "decoder.layers.N.self_attn_layer_norm": "post_attn",
        "decoder.layers.N.final_layer_norm": "post_mlp",
    },
    **dict.fromkeys(["bert", "roberta", "electra", "deberta"], _BERT),
    "albert": {
        "embeddings.LayerNorm": "embed",
        "encoder.albert_layer_groups.N.albert_layers.N.attention.LayerNorm": "post_attn",
        "encoder.albert_layer_groups.N.albert_layers.N.full_layer_layer_norm": "post_mlp",
    },
    "roberta-prelayernorm": {
        "embeddings.LayerNorm": "embed",
        "encoder.layer.N.attention.LayerNorm": "pre_attn",
        "encoder.layer.N.intermediate.LayerNorm": "pre_mlp",
        "LayerNorm": "final",
    },
    "fnet": {
        "embeddings.LayerNorm": "embed",
        "encoder.layer.N.fourier.output.LayerNorm": "post_attn",
        "encoder.layer.N.output.LayerNorm": "post_mlp",
    },
    "distilbert": {
        "embeddings.LayerNorm": "embed",
        "transformer.layer.N.sa_layer_norm": "post_attn",
        "transformer.layer.N.output_layer_norm": "post_mlp",
    },
    "squeezebert": {
        "embeddings.LayerNorm": "embed",
        "encoder.layers.N.post_attention.layernorm": "post_attn",
        "encoder.layers.N.output.layernorm": "post_mlp",
    },
    "xlnet": {"layer.N.rel_attn.layer_norm": "post_attn", "layer.N.ff.layer_norm": "post_mlp"},
    "bart": _seq2seq("post")
    | {"encoder.layernorm_embedding": "embed", "decoder.layernorm_embedding": "embed"},
    "marian": _seq2seq("post"),
    **dict.fromkeys(
        ["pegasus", "whisper"],
        _seq2seq("pre") | {"encoder.layer_norm": "final", "decoder.layer_norm": "final"},
    ),
    **dict.fromkeys(["t5", "mt5"], _T5),
    **dict.fromkeys(["wav2vec2", "hubert"], _WAV2VEC2),
    "wav2vec2-stable": _WAV2VEC2
    | {
        "feature_extractor.conv_layers.N.layer_norm": "embed",
        "encoder.layer_norm": "final",
        "encoder.layers.N.layer_norm": "pre_attn",
        "encoder.layers.N.final_layer_norm": "pre_mlp",
    },
    **dict.fromkeys(["vit", "deit"], _VIT),
    "beit": {
        "layers.N.layernorm_before": "pre_attn",
        "layers.N.layernorm_after": "pre_mlp",
        "pooler.layernorm": "final",
    },
    "dinov2": {
        "encoder.layer.N.norm1": "pre_attn",
        "encoder.layer.N.norm2": "pre_mlp",
        "layernorm": "final",
    },
    "siglip_vision_model": _CLIP | {"post_layernorm": "final", "head.layernorm": "final"},
    "swin": {
        "embeddings.norm": "embed",
        "encoder.layers.N.blocks.N.layernorm_before": "pre_attn",
        "encoder.layers.N.blocks.N.layernorm_after": "pre_mlp",
        "encoder.layers.N.downsample.norm": "embed",
        "layernorm": "final",
    },
    # version 2 normalises what attention and MLP return, under the names of version 1
    "swinv2": {
        "embeddings.norm": "embed",
        "encoder.layers.N.blocks.N.layernorm_before": "post_attn",
        "encoder.layers.N.blocks.N.layernorm_after": "post_mlp",
        "encoder.layers.N.downsample.norm": "embed",
        "layernorm": "final",
    },
    "clip": {
        **{
            f"{half}.{path}": role
            for half in ("text_model", "vision_model")
            for path, role in _CLIP.items()
        },
        "text_model.final_layer_norm": "final",
        "vision_model.pre_layrnorm": "embed",
        "vision_model.post_layernorm": "final",
    },
    "mamba": {"layers.N.norm": "pre_attn", "norm_f": "final"},
    "mamba2": {"layers.N.norm": "pre_attn", "layers.N.mixer.norm": "inner!", "norm_f": "final"},
    "convnext": {
        "embeddings.layernorm": "embed",
        "encoder.stages.N.layers.N.layernorm": "pre_mlp",
        "encoder.stages.N.downsampling_layer.N": "embed",
        "layernorm": "final",
    },
}
