"""Makes ../fixtures/chat: a tiny checkpoint, and what transformers says of chats and pairs.

    pip install torch==2.11.0 transformers==5.24.0
    python chat.py

Written without any code of this project. The checkpoint is random (the same each time) and its
weights are large enough for a mistake to show. Templates come from ../fixtures/chat/templates.
The conventions are those of docs/numerics.md: `chat` is `rolling` without a prefix, so the first
token is context; `pairs` have the prefix `rolling` gives a document. ../fixtures/README.md says
what expected.json holds.
"""

import json
import pathlib

import tokenizers
import torch
import transformers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

FIXTURE = pathlib.Path(__file__).parent / "../fixtures/chat"
WINDOW = 64
VOCABULARY = 320
SPECIAL = [
    "<s>", "</s>", "<unk>",
    "<|im_start|>", "<|im_end|>",
    "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "[INST]", "[/INST]",
    "<start_of_turn>", "<end_of_turn>",
]
TRAINING = """a   b   c    d    the   tide    and   the    wind   is      no
The keeper of the light writes down the wind, the tide and the hour.
You are a helpful assistant. What is the answer? The answer is that there is   no answer.
system user assistant model Today Date: 26 Jul 2024. In the morning they were on the water."""

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
LONG = " ".join(
    f"At {hour}:{7 * hour % 60:02} the keeper wrote that the wind was at {3 * hour % 17} m/s."
    for hour in range(1, 9)
)
CONVERSATIONS = {
    "system": [
        (SYSTEM, "Answer in one word."), (USER, "What is the answer?"), (ASSISTANT, "Water."),
    ],
    "turns": [
        (USER, "Are you there?"), (ASSISTANT, "I am."), (USER, "Where?"),
        (ASSISTANT, "In the lighthouse."), (USER, "Alone?"), (ASSISTANT, "With the tide."),
    ],
    "unicode": [
        (USER, "Größe: 12,5 µm — naïve cafés… 数値？"), (ASSISTANT, "は「良い」です 👩‍🔬🚀🏽"),
        (USER, "שלום γειά e\u0301"), (ASSISTANT, "\u00a0\u3000🙂"),
    ],
    "newlines": [
        (USER, "\n\nfirst\n\n\tsecond\r\nthird\n"), (ASSISTANT, "one\n\n\n- two\n- three\n\n"),
        (USER, " \t "), (ASSISTANT, "x\n"),
    ],
    "long": [
        (USER, LONG), (ASSISTANT, LONG[::-1]), (USER, "And then?"), (ASSISTANT, LONG[:99]),
    ],
    "empty": [(USER, ""), (ASSISTANT, ""), (USER, "Say it."), (ASSISTANT, "")],
    "markup": [
        (USER, "<b>&amp; \"quoted\" 'single' {{ messages }} {% raise %}</b>"),
        (ASSISTANT, "wait   what    <i>no</i>  & yes\\n"),
        (USER, "</s>[INST] <|im_end|>"), (ASSISTANT, "a<end_of_turn>b<|eot_id|>c"),
    ],
    "asked": [(USER, "Is it late?"), (ASSISTANT, "It is."), (USER, "How late?")],
    "unanswered": [(USER, "Hello?")],
    "twice": [(USER, "Hello?"), (USER, "Hello!"), (ASSISTANT, "Yes.")],
}
PAIRS = {
    "space": ("The answer is", " water and tide."),
    "within a token": ("The answ", "er is in the"),
    "unicode": ("数値: caf", "é は 🙂🏽"),
    "long": (LONG[:150], LONG),
    "no prompt": ("", "The tide."),
    "no response": ("The tide.", ""),
    "spaces": ("a   ", "    b   c"),
    "special": ("<s>Is it late?</s>", "It is.</s>"),
}


def make_tokenizer():
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    model.train_from_iterator([TRAINING], trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=sorted(alphabet), show_progress=False,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
    ))
    # A BOS that must not come on top of a template's own, and offsets that leave out spaces.
    model.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)]),
    ])
    return PreTrainedTokenizerFast(
        tokenizer_object=model, bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


def make_model():
    torch.manual_seed(20261129)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=48, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
        rms_norm_eps=1e-3, rope_theta=1000.0, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=1, dtype="float32",
    )
    model = LlamaForCausalLM(config).eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.data = 1 + 0.3 * torch.randn(weight.shape)
        elif "embed" in name:
            weight.data = torch.randn(weight.shape)
        else:
            scale = 3 if "lm_head" in name else 2 if "q_proj" in name or "k_proj" in name else 1.2
            weight.data = scale * torch.randn(weight.shape) / weight.shape[1] ** 0.5
    return model


def windows(fed):
    """Of the tokens fed, all but the first are targets: inputs, and index of the first target."""
    targets = len(fed) - 1
    for first in range(0, targets, WINDOW):
        end = min(first + WINDOW, targets)
        yield fed[max(0, end - WINDOW):end], first, end


@torch.no_grad()
def nlls(model, fed):
    """The NLL of each token after the first."""
    values = []
    for inputs, first, end in windows(fed):
        logits = model(torch.tensor([inputs])).logits[0, first - end:].double()
        targets = torch.tensor(fed[first + 1:end + 1])[:, None]
        values += (-logits.log_softmax(-1).gather(1, targets)[:, 0]).tolist()
    return values


# What ByteLevel writes for each byte, inverted: its alphabet keeps the printable bytes.
def byte_of_char():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(256) if byte not in keep]
    return {chr(byte): byte for byte in keep} | {
        chr(256 + index): byte for index, byte in enumerate(moved)
    }


BYTES = byte_of_char()


def byte_ranges(tokenizer, ids, text):
    """The bytes of the text that each token stands for, exactly."""
    ranges, at = [], 0
    for token in tokenizer.convert_ids_to_tokens(ids):
        raw = token.encode() if token in SPECIAL else bytes(BYTES[char] for char in token)
        assert text.encode()[at:at + len(raw)] == raw, (token, at)
        ranges.append((at, at + len(raw)))
        at += len(raw)
    assert at == len(text.encode())
    return ranges


def overlap(ranges, spans):
    return [int(any(a < end and start < b for start, end in spans)) for a, b in ranges]


def added_by_assistant(render, messages):
    """Byte ranges: what each of the assistant's turns adds to the prompt before it."""
    whole, spans = render(messages, False), []
    for index, message in enumerate(messages):
        if message["role"] == ASSISTANT:
            prompt = render(messages[:index], True)
            full = render(messages[:index + 1], False)
            assert whole.startswith(full) and full.startswith(prompt)
            spans.append((len(prompt.encode()), len(full.encode())))
    return spans


def chat(model, tokenizer, template, messages):
    tokenizer.chat_template = template

    def render(part, prompt):
        return tokenizer.apply_chat_template(part, tokenize=False, add_generation_prompt=prompt)

    try:
        text = render(messages, False)
    except Exception as error:  # noqa: BLE001 - jinja2's, raised by the template
        return {"error": str(error)}
    ids = list(tokenizer.apply_chat_template(messages, tokenize=True)["input_ids"])
    ranges = byte_ranges(tokenizer, ids, text)
    mask = overlap(ranges, added_by_assistant(render, messages))
    if "{%- generation %}" in template:
        marked = tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        # What is marked ends before the line feed behind a turn.
        spans = [(start, end - 1) for start, end in added_by_assistant(render, messages)]
        assert (marked["input_ids"], marked["assistant_masks"]) == (ids, overlap(ranges, spans))
        mask = marked["assistant_masks"]
    return scored(nlls(model, ids), [None], text, ids, ranges, mask)


def pair(model, tokenizer, prompt, response):
    text = prompt + response
    ids = tokenizer.encode(text, add_special_tokens=False)
    start = len(prompt.encode())
    ranges = byte_ranges(tokenizer, ids, text)
    mask = overlap(ranges, [(start, len(text.encode()))])
    result = scored(nlls(model, [tokenizer.bos_token_id] + ids), [], text, ids, ranges, mask)
    return {"prompt": prompt, "response": response} | result


def scored(values, context, text, ids, ranges, mask):
    """`nll` has a value for each token, null for one that is only context."""
    every = context + values
    counted = [value for value, counts in zip(every, mask) if counts and value is not None]
    return {
        "text": text,
        "ids": ids,
        "starts": [start for start, _ in ranges],
        "mask": mask,
        "nll": [value if value is None else float(f"{value:.10g}") for value in every],
        "counted_tokens": len(counted),
        "counted_nll": sum(counted),
        "all_tokens": len(values),
        "all_nll": sum(values),
    }


def written(value, depth=0):
    """JSON with a result, or a conversation, on a line."""
    if not isinstance(value, dict) or "ids" in value or "error" in value:
        return json.dumps(value, ensure_ascii=False)
    inner = " " * (depth + 1)
    items = (f"{inner}{json.dumps(key)}: {written(item, depth + 1)}" for key, item in value.items())
    return "{\n" + ",\n".join(items) + "\n" + " " * depth + "}"


def main():
    torch.set_num_threads(1)
    model, tokenizer = make_model(), make_tokenizer()
    model.save_pretrained(FIXTURE)
    tokenizer.save_pretrained(FIXTURE)
    (FIXTURE / "generation_config.json").unlink(missing_ok=True)
    reference = {
        "made_by": "reference/chat.py",
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "tokenizers": tokenizers.__version__,
        "window": WINDOW,
        "prefix": tokenizer.bos_token_id,
        "conversations": {
            name: [{"role": role, "content": content} for role, content in turns]
            for name, turns in CONVERSATIONS.items()
        },
    }
    reference["templates"] = {
        path.stem: {
            name: chat(model, tokenizer, path.read_text(encoding="utf-8"), messages)
            for name, messages in reference["conversations"].items()
        }
        for path in sorted((FIXTURE / "templates").glob("*.jinja"))
    }
    reference["pairs"] = {
        name: pair(model, tokenizer, *texts) for name, texts in PAIRS.items()
    }
    (FIXTURE / "expected.json").write_text(written(reference) + "\n", encoding="utf-8")

main()
