"""transformers GPT-2 (random weights), greedy generation with a key-value cache; a step is one call
that makes 12 tokens."""
import worker


def setup():
    torch = worker.torch_setup()
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config()).eval().cuda().half()
    prompt = torch.randint(0, 50000, (1, 16), device="cuda")
    mask = torch.ones_like(prompt)
    state = {}

    def step():
        state["tokens"] = model.generate(prompt, attention_mask=mask, do_sample=False,
                                         max_new_tokens=12, min_new_tokens=12, pad_token_id=50256)
        torch.cuda.synchronize()

    return step, lambda: {"tokens": worker.raw(state["tokens"])}


worker.serve(setup, warmup=4)
