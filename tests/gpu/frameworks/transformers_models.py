"""Forward passes of transformers' architectures, small configurations, random weights: encoders,
decoders, mixtures, state space, encoder-decoders, vision, sound."""
import cases
import models
import transformers as tf

WIDE = dict(hidden_size=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512,
            vocab_size=1000)
LLAMA = dict(WIDE, num_key_value_heads=2, max_position_embeddings=256)
PLAIN = dict(WIDE, max_position_embeddings=256)
GPT = dict(n_embd=256, n_layer=3, n_head=4, vocab_size=1000)


def ids(torch):
    return (), {"input_ids": torch.randint(5, 990, (2, 64))}


def both_sides(torch):
    return (), {
        "input_ids": torch.randint(5, 990, (2, 48)),
        "decoder_input_ids": torch.randint(5, 990, (2, 16))
    }


def image(torch):
    return (), {"pixel_values": torch.randn(2, 3, 224, 224)}


# name -> (model class, configuration class, its arguments, inputs, further variants)
MODELS = {
    "bert": ("BertModel", "BertConfig", PLAIN, ids, ("half", "bfloat16")),
    "roberta": ("RobertaModel", "RobertaConfig", PLAIN, ids, ("half",)),
    "albert": ("AlbertModel", "AlbertConfig", dict(PLAIN, embedding_size=128), ids, ()),
    "electra": ("ElectraModel", "ElectraConfig", dict(PLAIN, embedding_size=128), ids, ()),
    "distilbert": ("DistilBertModel", "DistilBertConfig",
                   dict(dim=256, n_layers=3, n_heads=4, hidden_dim=512, vocab_size=1000), ids, ()),
    "deberta_v2": ("DebertaV2Model", "DebertaV2Config", PLAIN, ids, ("half",)),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT, ids, ("half", "bfloat16")),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", PLAIN, ids, ("half",)),
    "opt": ("OPTForCausalLM", "OPTConfig", dict(PLAIN, ffn_dim=512,
                                                word_embed_proj_dim=256), ids, ()),
    "bloom": ("BloomForCausalLM", "BloomConfig",
              dict(hidden_size=256, n_layer=3, n_head=4, vocab_size=1000), ids, ("bfloat16",)),
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA, ids, ("half", "bfloat16")),
    "mistral": ("MistralForCausalLM", "MistralConfig", LLAMA, ids, ("bfloat16",)),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", LLAMA, ids, ()),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", dict(LLAMA, head_dim=64), ids, ("bfloat16",)),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", dict(LLAMA, head_dim=64), ids, ("bfloat16",)),
    "phi": ("PhiForCausalLM", "PhiConfig", PLAIN, ids, ("half",)),
    "falcon": ("FalconForCausalLM", "FalconConfig", WIDE, ids, ()),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", dict(LLAMA, num_local_experts=4), ids,
                ("bfloat16",)),
    "mamba": ("MambaForCausalLM", "MambaConfig",
              dict(hidden_size=256, num_hidden_layers=3, vocab_size=1000), ids, ()),
    "t5": ("T5ForConditionalGeneration", "T5Config",
           dict(d_model=256, d_ff=512, num_layers=3, num_heads=4, d_kv=64,
                vocab_size=1000), both_sides, ("bfloat16",)),
    "bart": ("BartForConditionalGeneration", "BartConfig",
             dict(d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                  decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512,
                  vocab_size=1000, pad_token_id=1, bos_token_id=0,
                  eos_token_id=2), both_sides, ("half",)),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig",
                dict(d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                     decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512,
                     vocab_size=1000, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                     decoder_start_token_id=3), lambda torch: ((), {
                         "input_features": torch.randn(1, 80, 3000),
                         "decoder_input_ids": torch.randint(5, 990, (1, 12))
                     }), ("half",)),
    "vit": ("ViTModel", "ViTConfig", dict(WIDE, image_size=224), image, ("half", "bfloat16")),
    "dinov2": ("Dinov2Model", "Dinov2Config",
               dict(hidden_size=256, num_hidden_layers=3, num_attention_heads=4,
                    image_size=224), image, ()),
    "segformer": ("SegformerModel", "SegformerConfig", {}, image, ("half",)),
    "clip": ("CLIPModel", "CLIPConfig", {}, lambda torch: ((), {
        "input_ids": torch.randint(5, 990, (2, 32)),
        "pixel_values": torch.randn(2, 3, 224, 224)
    }), ("half",)),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", PLAIN, lambda torch: ((), {
        "input_values": torch.randn(1, 16000)
    }), ()),
}


def build(name):
    model, config, arguments = MODELS[name][:3]
    return getattr(tf, model)(getattr(tf, config)(**{k: v for k, v in arguments.items()}))


for one, (_, _, _, given, kinds) in MODELS.items():
    models.add(one, lambda one=one: build(one), given, kinds)


def generate(name, **options):
    torch = cases.torch_setup()
    cases.seed(f"generate_{name}")
    with torch.device(cases.DEVICE):
        model = models.fill_zeros(build(name).eval())
        prompt = torch.randint(5, 990, (2, 12))
    with torch.no_grad():
        tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24,
                                min_new_tokens=24, pad_token_id=0, **options)
    return {"tokens": tokens}


cases.add("generate_greedy_llama", lambda: generate("llama", do_sample=False))
cases.add("generate_sampled_gpt2", lambda: generate("gpt2", do_sample=True, top_k=50))
cases.add("generate_beams_gpt2", lambda: generate("gpt2", do_sample=False, num_beams=4))
cases.main()
