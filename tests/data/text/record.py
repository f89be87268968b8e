"""Record small text models with random weights, and the answers of transformers' pipelines.

    python tests/data/text/record.py        needs torch, transformers, tokenizers, onnx

Writes tokenizer.json, a model for each task, and answers.json beside this file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

HERE = Path(__file__).parent
SENTENCES = [
    "Ada Lovelace wrote to Charles Babbage from London.",
    "The cat sat on the mat, and the dog slept.",
    "In Vienna it rains; in Zürich the sun shines.",
    "Größe, naïve café, 東京 and Москва are words too.",
]
PAIRS = [
    ("Where does it rain?", "In Vienna it rains; in Zürich the sun shines."),
    ("Who wrote?", "Ada Lovelace wrote to Charles Babbage from London."),
]
MASKED = ["The cat sat on the [MASK].", "[MASK] it rains in [MASK]."]
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def make_tokenizer() -> tokenizers.Tokenizer:
    """Return a WordPiece tokenizer of a small vocabulary, trained on the sentences."""
    made = tokenizers.BertWordPieceTokenizer(lowercase=False, strip_accents=False)
    made.train_from_iterator([*SENTENCES, *(text for pair in PAIRS for text in pair)], vocab_size=120, min_frequency=1)
    found = tokenizers.Tokenizer.from_str(made.to_str())
    special = [(token, found.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    found.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    return found


class Named(torch.nn.Module):
    """Model of transformers with outputs as a tuple."""

    def __init__(self, model: Any, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> tuple[Any, ...]:
        """Return the outputs of the names."""
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return tuple(getattr(found, name) for name in self.names)


def export(model: Any, name: str, outputs: list[str]) -> None:
    """Write the model as ONNX with a dynamic number of texts and tokens."""
    ids = torch.ones((2, 7), dtype=torch.int64)
    inputs = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(
        Named(model, outputs).eval(), (ids, ids, ids * 0), str(HERE / f"{name}.onnx"), dynamo=False, opset_version=17,
        input_names=inputs, output_names=outputs,
        dynamic_axes={each: {0: "texts", 1: "tokens"} for each in [*inputs, *outputs]},
    )  # fmt: skip


def main() -> None:
    """Write all files."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    tokenizer.save(str(HERE / "tokenizer.json"))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", sep_token="[SEP]", cls_token="[CLS]", pad_token="[PAD]",
        mask_token="[MASK]", model_max_length=64,
    )  # fmt: skip
    fast.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]

    def config(**more: Any) -> Any:
        return transformers.BertConfig(
            vocab_size=tokenizer.get_vocab_size(), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=24, max_position_embeddings=64, initializer_range=1.0, attn_implementation="eager", **more,
        )  # fmt: skip

    names = dict(enumerate(LABELS))
    answers: dict[str, Any] = {"sentences": SENTENCES, "pairs": PAIRS, "masked": MASKED, "labels": LABELS}

    embedder = transformers.BertModel(config()).eval()
    export(embedder, "embedding", ["last_hidden_state"])
    pooled = []
    for sentence in SENTENCES:
        hidden = embedder(**fast(sentence, return_tensors="pt")).last_hidden_state[0]
        pooled.append(torch.nn.functional.normalize(hidden.mean(dim=0), dim=0).tolist())
    answers["embedding"] = pooled

    classifier = transformers.BertForSequenceClassification(config(id2label=names)).eval()
    export(classifier, "text-classification", ["logits"])
    pipe = transformers.pipeline("text-classification", model=classifier, tokenizer=fast, top_k=None)
    answers["text-classification"] = pipe(SENTENCES)

    scorer = transformers.BertForSequenceClassification(config(num_labels=1)).eval()
    export(scorer, "rerank", ["logits"])
    answers["rerank"] = [
        torch.sigmoid(scorer(**fast(*pair, return_tensors="pt")).logits)[0, 0].item() for pair in PAIRS
    ]

    tagger = transformers.BertForTokenClassification(config(id2label=names)).eval()
    export(tagger, "token-classification", ["logits"])
    for aggregation in ("simple", "first"):
        pipe = transformers.pipeline(
            "token-classification", model=tagger, tokenizer=fast, aggregation_strategy=aggregation
        )
        answers[f"token-classification/{aggregation}"] = [pipe(sentence) for sentence in SENTENCES]

    reader = transformers.BertForQuestionAnswering(config()).eval()
    export(reader, "question-answering", ["start_logits", "end_logits"])
    found = []
    for question, context in PAIRS:
        tokens = fast(question, context, return_tensors="pt")
        out = reader(**tokens)
        inside = torch.tensor([sequence == 1 for sequence in tokens.encodings[0].sequence_ids])
        start, end = (
            torch.softmax(logits[0].masked_fill(~inside, -torch.inf), 0)
            for logits in (out.start_logits, out.end_logits)
        )
        scores = torch.triu(start[:, None] * end[None, :])
        first, last = divmod(int(scores.argmax()), len(end))
        offsets = tokens.encodings[0].offsets
        begin, stop = offsets[first][0], offsets[last][1]
        found.append({"answer": context[begin:stop], "score": scores.max().item(), "start": begin, "end": stop})
    answers["question-answering"] = found

    filler = transformers.BertForMaskedLM(config()).eval()
    export(filler, "fill-mask", ["logits"])
    pipe = transformers.pipeline("fill-mask", model=filler, tokenizer=fast, top_k=3)
    answers["fill-mask"] = [pipe(text) for text in MASKED]

    (HERE / "answers.json").write_text(json.dumps(answers, indent=1, ensure_ascii=False, default=float) + "\n")


if __name__ == "__main__":
    main()
