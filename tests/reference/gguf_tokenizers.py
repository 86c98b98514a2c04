"""Makes crates/checkpoint/tests/data/gguf_tokenizers.json: what llama.cpp makes of texts.

    pip install gguf==0.19.0 tokenizers==0.23.3 sentencepiece==0.2.3
    python gguf_tokenizers.py LIBLLAMA.so

The library is a build of llama.cpp whose `llama_model_params` is the structure below, such as that
in the wheel of xllamacpp 2026.10.11549. Files of metadata only are loaded by it, as vocabularies.
The byte-level one is trained on the texts uncut, so that its tokens cross every border that a
pre-tokenizer may draw; merges are taken out of it, so that some tokens are not to be had by merging.
"""

import ctypes
import json
import pathlib
import random
import sys
import tempfile
import unicodedata

import gguf
import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

DECOMPOSED = "e\u0301 a\u0308 o\u0302\u0323 n\u0303o"
DATA = pathlib.Path(__file__).parents[2] / "crates/checkpoint/tests/data"
TEXTS = [
    "",
    " ",
    "    ",
    "\n",
    "\n\n\n",
    "\r\n",
    "\t\t",
    "Hello world",
    "Hello,  world!   How are you?",
    " leading and trailing ",
    "  two  spaces   three    four     ",
    "a\nb\n\nc\r\nd\r\n\r\ne\tf\t\tg",
    "x \n y  \n\n  z   \r\n   w",
    "space at end of line \nnext",
    "I'm you're he's we've they'll I'd don't",
    "I'M YOU'RE HE'S WE'VE THEY'LL I'D DON'T",
    "it\u2019s 'quoted' 'sup ''re'' 's",
    "0 12 345 6789 01234 567890 1234567",
    "3.14159, 1,000,000 and 2024-01-02T03:04:05",
    "v2x3 a1b22c333d4444 x86_64",
    "\u0661\u0662\u0663\u0664 \u00bd \u00b2\u00b3 \u2167 \u2460",
    "if (x == 0) { return &y->z[1]; } // done",
    "def f(self, *args, **kwargs):\n    return self.x + 1\n\n\nclass A:\n\tpass\n",
    "$100 + 5% = #1 @home ^2 `code` ~tilde |pipe| <tag/> \\back",
    "!!! ... --- === ___ *** ((())) [[]] {{}}",
    "e-mail: a.b@c.org, http://example.org/?q=1&r=2#x",
    "camelCase PascalCase SCREAMING_CASE snake_case HTTPServer iPhone",
    "na\u00efve caf\u00e9 \u00dcbermut stra\u00dfe \u00c9T\u00c9 \u0152uvre",
    "\u00c9t\u00e9 \u0416\u0443\u043a \u0394\u03ad\u03bb\u03c4\u03b1 \u041f\u0420\u0418\u0432\u0435\u0442",
    DECOMPOSED,
    unicodedata.normalize("NFC", DECOMPOSED),
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u00ab\u0413\u0434\u0435?\u00bb",
    "\u6771\u4eac\u90fd\u306b\u884c\u304d\u307e\u3059\u3002\u30c6\u30b9\u30c8\uff0c\u4f60\u597d\uff01123",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5 \uc785\ub2c8\ub2e4.",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u05e9\u05dc\u05d5\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001f642 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7\U0001f44d\U0001f3fd!\u2764\ufe0f",
    "a\u00a0b\u3000c\u2009d\u200be\ufefff\u0085g\u2028h",
    "ctrl \u0001\u0002\u001f\u007f end",
    "\U0001d54f\U00020000 \U0001f9ff\u2603 \u2192\u2200\u2211 \u20ac\u00a3\u00a5",
    "\u2581already\u2581there \u2581x",
    "one <|sep|> two<|sep|>three [x]four  [x]  <|sep|>",
    "a  b   c    d     e      f       g        h",
    "Call me Ishmael. Some years ago, 1851!",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "\ufb01ne \uff21\uff11 \u1e9e\u0130\u0131 \u01c5",
]
NAMES = """default gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling
starcoder refact command-r smollm codeshell exaone minerva-7b mellum2
llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2
dbrx smaug-bpe chatglm-bpe glm4
qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2 qwen35
falcon deepseek-llm deepseek-coder deepseek-v3 hunyuan-dense joyai-llm
tekken gpt-4o llama4 seed-coder""".split()
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


class Parameters(ctypes.Structure):
    """`llama_model_params`."""

    _fields_ = [
        ("devices", ctypes.c_void_p),
        ("tensor_buft_overrides", ctypes.c_void_p),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int32),
        ("load_mode", ctypes.c_int32),
        ("lazy_mode", ctypes.c_int32),
        ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p),
        ("progress_callback", ctypes.c_void_p),
        ("progress_callback_user_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("flags", ctypes.c_bool * 8),
    ]


class Llama:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self.quiet = quiet(lambda level, text, data: None)
        self.library.llama_log_set(self.quiet, None)
        self.library.llama_model_default_params.restype = Parameters
        self.library.llama_model_load_from_file.restype = ctypes.c_void_p
        self.library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Parameters]
        self.library.llama_model_get_vocab.restype = ctypes.c_void_p
        self.library.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        self.library.llama_model_free.argtypes = [ctypes.c_void_p]
        self.library.llama_vocab_get_add_bos.restype = ctypes.c_bool
        self.library.llama_vocab_get_add_bos.argtypes = [ctypes.c_void_p]
        self.library.llama_tokenize.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_int32,
            ctypes.c_void_p,
            ctypes.c_int32,
            ctypes.c_bool,
            ctypes.c_bool,
        ]

    def run(self, model, keys):
        """Whether a BOS goes in front, and the ids of all texts without it."""
        with tempfile.TemporaryDirectory() as directory:
            path = str(pathlib.Path(directory) / "vocabulary.gguf")
            write(path, model, keys)
            parameters = self.library.llama_model_default_params()
            parameters.flags[0] = True  # vocab_only
            loaded = self.library.llama_model_load_from_file(path.encode(), parameters)
        assert loaded, keys
        vocabulary = self.library.llama_model_get_vocab(loaded)
        ids = [self.tokenize(vocabulary, text.encode()) for text in TEXTS]
        adds_bos = self.library.llama_vocab_get_add_bos(vocabulary)
        self.library.llama_model_free(loaded)
        return {"adds_bos": adds_bos, "ids": ids}

    def tokenize(self, vocabulary, text):
        room = (ctypes.c_int32 * 1024)()
        count = self.library.llama_tokenize(
            vocabulary, text, len(text), room, len(room), False, True
        )
        assert count >= 0
        return list(room[:count])


def write(path, model, keys):
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {
        "context_length": 64,
        "embedding_length": 64,
        "block_count": 1,
        "feed_forward_length": 64,
        "attention.head_count": 1,
    }.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model(model)
    for key, value in keys.items():
        key = key if key.startswith("general.") else f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        min_frequency=1,
        special_tokens=["<s>", "</s>", "<|sep|>", "[x]"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    choice = random.Random(7)
    merges = [" ".join(pair) for pair in model["merges"] if choice.random() > 0.1]
    types = [CONTROL] * 3 + [USER_DEFINED] + [NORMAL] * (len(tokens) - 4)
    return {"tokens": tokens, "merges": merges, "token_type": types, "bos_token_id": 0, "eos_token_id": 1}


def pieces(name):
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(DATA / f"sentencepiece/{name}.model")
    )

    def kind(piece):
        if processor.IsUnknown(piece):
            return UNKNOWN
        if processor.IsControl(piece):
            return CONTROL
        if processor.IsByte(piece):
            return BYTE
        return UNUSED if processor.IsUnused(piece) else NORMAL

    ids = range(processor.vocab_size())
    keys = {
        "tokens": [processor.IdToPiece(piece) for piece in ids],
        "scores": [processor.GetScore(piece) for piece in ids],
        "token_type": [kind(piece) for piece in ids],
    }
    # Added tokens as a conversion writes them: with spaces, and a score that is none.
    for token, kind in [
        ("<|sep|>", CONTROL),
        ("<|endoftext|>", CONTROL),
        ("[x]", USER_DEFINED),
        ("   ", USER_DEFINED),
    ]:
        keys["tokens"].append(token)
        keys["scores"].append(-1000.0)
        keys["token_type"].append(kind)
    return keys


def main():
    llama = Llama(sys.argv[1])
    vocabulary = byte_level()
    made = {
        "made_by": "gguf_tokenizers.py",
        "texts": TEXTS,
        "gpt2": {"keys": vocabulary, "results": {}},
        "llama": {"keys": pieces("llama"), "results": {}},
    }
    seen = {}
    for name in NAMES:
        result = llama.run("gpt2", vocabulary | {"pre": name})
        # Names of one kind are stored once.
        made["gpt2"]["results"][name] = seen.setdefault(json.dumps(result), name)
        if made["gpt2"]["results"][name] == name:
            made["gpt2"]["results"][name] = result
    # Of files named so, llama.cpp has added tokens take the spaces behind them along.
    name = {"general.name": "Phi-3 mini"}
    for case, keys in {
        "plain": {},
        "no_prefix": {"add_space_prefix": False},
        "no_bos": {"add_bos_token": False},
        "strips": name,
    }.items():
        result = llama.run("llama", made["llama"]["keys"] | keys)
        made["llama"]["results"][case] = {"more": keys} | result
    output = DATA / "gguf_tokenizers.json"
    output.write_text(json.dumps(made, separators=(",", ":")) + "\n")


main()
