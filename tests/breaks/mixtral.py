"""A small Mixtral of transformers whose experts can't be captured, since their shapes depend on the data."""

import torch
import transformers


def mixtral(device):
    """Return a function of tokens that returns the logits."""
    sizes = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4}
    config = transformers.MixtralConfig(**sizes, **heads, max_position_embeddings=64)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager"
    )
    model = model.to(device).eval()

    @torch.no_grad()
    def logits(tokens):
        return model(input_ids=tokens, use_cache=False).logits

    return logits
