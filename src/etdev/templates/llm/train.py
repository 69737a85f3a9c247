"""Creation of a placeholder for your own language model. `python train.py` writes model/ in about half a minute.

The model has Llama's architecture and its own tokenizer. It is trained to recite rhyme.txt.
"""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).parent
BEGIN, END = "<|begin_of_text|>", "<|end_of_text|>"
STEPS, RATE = 120, 5e-3


def make_tokenizer(text: str) -> PreTrainedTokenizerFast:
    """Return a byte-pair tokenizer for the text. It adds a token before each text, as Llama's tokenizer does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=384, special_tokens=[BEGIN, END], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END)


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def verses(tokenizer: PreTrainedTokenizerFast, text: str) -> Tensor:
    """Return the tokens of all verses, one row for each verse. The rows are filled up with -100."""
    encoded = [[*tokenizer.encode(verse), tokenizer.eos_token_id] for verse in text.strip().split("\n\n")]
    tokens = torch.full((len(encoded), max(map(len, encoded))), -100)
    for row, verse in zip(tokens, encoded, strict=True):
        row[: len(verse)] = torch.tensor(verse)
    return tokens


def main() -> None:
    torch.manual_seed(0)
    text = (HERE / "rhyme.txt").read_text()
    tokenizer = make_tokenizer(text)
    model, tokens = make_model(tokenizer), verses(tokenizer, text)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(input_ids=tokens.clamp(min=0), labels=tokens).loss
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"loss {loss.item():.3f}")
    model.to(torch.bfloat16).save_pretrained(HERE / "model")
    tokenizer.save_pretrained(HERE / "model")


if __name__ == "__main__":
    main()
