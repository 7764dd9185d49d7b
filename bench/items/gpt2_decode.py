"""GPT-2 (transformers, random weights, half) decoding with a key-value cache: a step is one token,
chosen greedily and read back.

The context grows from 64 to 128 tokens and is then cut back to 64, so that steps stay alike however
many are run.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu" / "items"))
import worker  # noqa: E402

SHORTEST, LONGEST = 64, 128


def setup():
    torch = worker.torch_setup()
    from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config()).eval().cuda().half()
    prompt = torch.randint(0, 50000, (1, SHORTEST), device="cuda")
    cache = DynamicCache()
    first = model(input_ids=prompt, past_key_values=cache, use_cache=True)
    state = {"token": first.logits[:, -1:].argmax(-1)}
    made = []

    def step():
        if cache.get_seq_length() >= LONGEST:
            cache.crop(SHORTEST)
        out = model(input_ids=state["token"], past_key_values=cache, use_cache=True)
        state["logits"] = out.logits
        state["token"] = out.logits[:, -1:].argmax(-1)
        made.append(int(state["token"].cpu()))

    return step, lambda: {
        "tokens": worker.raw(torch.tensor(made)),
        "logits": worker.raw(state["logits"])
    }


worker.serve(setup)
