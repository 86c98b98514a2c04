//! How byte-level tokenizers cut a text before they join its bytes, by the names of
//! `tokenizer.ggml.pre`.

/// How a text is cut before byte-pair encoding. Each expression cuts the pieces the one before
/// it left; what it does not match stays as a piece.
pub(super) struct PreTokenizer {
    pub(super) names: &'static [&'static str],
    pub(super) expressions: &'static [&'static str],
    /// A piece that is a token is taken as it is, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// Whether a BOS goes in front where `add_bos_token` does not say.
    pub(super) adds_bos: bool,
    /// Composes characters first (NFC). llama.cpp does not; the models' own tokenizers do, and
    /// they were trained with it.
    pub(super) composes: bool,
}

/// The name of what a file has that does not name its pre-tokenizer.
pub(super) const DEFAULT: &str = "default";

const PLAIN: PreTokenizer = PreTokenizer {
    names: &[],
    expressions: &[],
    ignore_merges: false,
    adds_bos: false,
    composes: false,
};

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Letters with a case, and a space in front; the ranges that the models' own tokenizers list.
const CASED_LETTERS: &str = concat!(
    r"\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}",
    r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}",
    r"\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}",
    r"\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}",
    r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}",
    r"\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}",
    r"\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}",
    r"\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}",
    r"\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}",
    r"\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}",
    r"\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}",
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}",
    r"\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}",
    r"\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}",
    r"\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}",
    r"\x{1E900}-\x{1E943}]+",
);

/// The expressions of llama.cpp's `llm_tokenizer_bpe`, or those of the models' own tokenizers that
/// stand beside them there, where llama.cpp's engine cannot run these: it takes every letter that
/// is not ASCII for upper and lower case. Names whose expressions need a program are left out.
pub(super) const PRE_TOKENIZERS: [PreTokenizer; 17] = [
    PreTokenizer {
        names: &[DEFAULT],
        expressions: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "jais",
            "trillion",
            "granite-docling",
        ],
        expressions: &[GPT2],
        ..PLAIN
    },
    PreTokenizer {
        names: &["olmo", "mpt"],
        expressions: &[GPT2],
        composes: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        expressions: &[r"\p{N}", GPT2],
        ..PLAIN
    },
    PreTokenizer {
        names: &["falcon"],
        expressions: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
        ],
        expressions: &[LLAMA3],
        ignore_merges: true,
        adds_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["glm4"],
        expressions: &[LLAMA3],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["dbrx", "smaug-bpe", "chatglm-bpe"],
        expressions: &[LLAMA3],
        ..PLAIN
    },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen", "kormo", "megrez"],
        expressions: &[QWEN2],
        composes: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["qwen35"],
        expressions: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        composes: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["stablelm2", "hunyuan", "solar-open", "grok-2"],
        expressions: &[QWEN2],
        ..PLAIN
    },
    PreTokenizer {
        names: &["seed-coder"],
        expressions: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["tekken"],
        expressions: &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignore_merges: true,
        adds_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["gpt-4o", "llama4"],
        expressions: &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-llm"],
        expressions: &[
            r"[\r\n]",
            CASED_LETTERS,
            r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
            r"\s+$",
            r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+",
            r"\p{N}+",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        expressions: &[
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+",
            r"\p{N}",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        expressions: &[
            r"\p{N}{1,3}",
            r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
        ],
        ..PLAIN
    },
];
