"""transformers BERT (base, random weights), batch 4 x 128, half."""
import worker


def setup():
    torch = worker.torch_setup()
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig()).eval().cuda().half()
    ids = torch.randint(0, 30000, (4, 128)).pin_memory()
    state = {}

    def step():
        state["out"] = model(input_ids=ids.to("cuda", non_blocking=True)).last_hidden_state
        torch.cuda.synchronize()

    return step, lambda: {"hidden": worker.raw(state["out"])}


worker.serve(setup)
