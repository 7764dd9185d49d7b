"""GPT-2 greedy generation by one captured CUDA graph over a window of 64 tokens, with pinned copies
in and out each token.

A step makes one token: the window goes from pinned memory into the graph's input, the graph runs,
the chosen token comes back into pinned memory.
"""
import worker


def setup():
    torch = worker.torch_setup()
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config()).eval().cuda().half()
    window = torch.randint(0, 50000, (1, 64)).pin_memory()
    token = torch.zeros(1, dtype=torch.int64).pin_memory()
    static_in = window.to("cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            logits = model(static_in, use_cache=False).logits
            logits[:, -1].argmax(-1)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = model(static_in, use_cache=False).logits
        chosen = logits[:, -1].argmax(-1)
    made = []

    def step():
        static_in.copy_(window, non_blocking=True)
        graph.replay()
        token.copy_(chosen, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        made.append(int(token[0]))
        window[0, :-1] = window[0, 1:].clone()
        window[0, -1] = token[0]

    return step, lambda: {"tokens": worker.raw(torch.tensor(made)), "logits": worker.raw(logits)}


worker.serve(setup)
