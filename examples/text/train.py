"""Train the tokenizer and the classifier, and write `model/`. Seeded: a machine always computes the same weights."""

import os
from collections import Counter

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import DistilBertConfig, DistilBertForSequenceClassification, PreTrainedTokenizerFast

from data import FOLDER, LENGTH, accuracy, encode, messages, tokenizer

SEED = 5
VOCABULARY = 512
EPOCHS = 40
BATCH = 32
LONGEST = 5
"""Length of a piece in characters."""
PADDING, UNKNOWN, BEGIN, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


def train_tokenizer() -> None:
    """Choose word pieces from the training messages, and write `tokenizer.json`."""
    normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    splitter = pre_tokenizers.BertPreTokenizer()
    words = Counter(
        word for text, _ in messages()[1] for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    )
    pieces = [PADDING, UNKNOWN, BEGIN, END, *choose_pieces(words)]
    chosen = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token=UNKNOWN))
    chosen.normalizer, chosen.pre_tokenizer = normalizer, splitter
    ends = [(name, pieces.index(name)) for name in (BEGIN, END)]
    chosen.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A {END}", special_tokens=ends)
    PreTrainedTokenizerFast(
        tokenizer_object=chosen,
        pad_token=PADDING,
        unk_token=UNKNOWN,
        cls_token=BEGIN,
        sep_token=END,
        model_max_length=LENGTH,
    ).save_pretrained(FOLDER / "model")


def choose_pieces(words: Counter[str]) -> list[str]:
    """Return all characters, and the pieces that save the most tokens.

    The trainers of the package tokenizers would choose different pieces in each run.
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 1, min(start + LONGEST, len(word)) + 1):
                counts[("##" if start else "") + word[start:end]] += count
    saved = {piece: count * (len(piece.removeprefix("##")) - 1) for piece, count in counts.items()}
    best = sorted(saved, key=lambda piece: (saved[piece] > 0, -saved[piece], piece))
    return best[: VOCABULARY - 4]


def part(text: str, generator: torch.Generator) -> str:
    """Return at least two consecutive words of a text, as another text to train on."""
    words = text.split()
    count = int(torch.randint(min(2, len(words)), len(words) + 1, (), generator=generator))
    start = int(torch.randint(len(words) - count + 1, (), generator=generator))
    return " ".join(words[start : start + count])


def batches(generator: torch.Generator) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return parts of the training messages in a random order: tokens, masks and labels of each batch."""
    train = messages()[1]
    found = []
    for chosen in torch.randperm(len(train), generator=generator).split(BATCH):
        rows = [encode(part(train[index][0], generator))[0][0] for index in chosen]
        tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer().token_to_id(PADDING))
        mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        found.append((tokens, mask, torch.tensor([train[index][1] for index in chosen])))
    return found


def train() -> nn.Module:
    """Train the classifier from random weights."""
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # the order of sums depends on the number of threads

    languages = messages()[0]
    config = DistilBertConfig(
        vocab_size=tokenizer().get_vocab_size(),
        max_position_embeddings=LENGTH,
        dim=32,
        hidden_dim=64,
        n_heads=4,
        n_layers=2,
        pad_token_id=tokenizer().token_to_id(PADDING),
        id2label=dict(enumerate(languages)),
        label2id={name: label for label, name in enumerate(languages)},
    )
    model = DistilBertForSequenceClassification(config).train()
    generator = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    steps = EPOCHS * -(-len(messages()[1]) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps)
    for epoch in range(1, EPOCHS + 1):
        total = 0.0
        for tokens, mask, labels in batches(generator):
            loss = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(labels)
        if epoch % 8 == 0:
            print(f"epoch {epoch:2}: loss {total / len(messages()[1]):.4f}")
    return model.eval()


def main() -> None:
    train_tokenizer()
    model = train()
    with torch.inference_mode():
        found = accuracy(lambda tokens, mask: [model(input_ids=tokens, attention_mask=mask).logits])
    print(f"held-out accuracy {found:.4f}")
    model.save_pretrained(FOLDER / "model")


if __name__ == "__main__":
    main()
