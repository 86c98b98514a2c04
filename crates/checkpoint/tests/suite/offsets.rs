//! Tokens and the bytes they stand for.

use assay_checkpoint::{Checkpoint, TextTokenizer, TokenBytes};

use crate::gguf_file::GgufFile;
use crate::sandbox::{CASES, Sandbox, expected, fixture};
use crate::sentencepiece;

const TEXTS: [&str; 8] = [
    "",
    "The ferry leaves at 7:45,  \n\n and «Это» not.",
    "  leading",
    "trailing  \n",
    "🙂🙂 e\u{301} 東京",
    "<s>a</s> <s>b",
    "\u{2581}x \u{a0}y",
    "\n\n\n",
];

fn assert_offsets(name: &str, tokenizer: &TextTokenizer, text: &str) -> Vec<TokenBytes> {
    let tokens = tokenizer.encode_with_offsets(text).unwrap();
    let ids: Vec<u32> = tokens.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, tokenizer.encode(text).unwrap(), "{name}, {text:?}");
    let mut last = 0..0;
    for (_, bytes) in &tokens {
        // Whole characters, in order; a gap would be text that no token stands for.
        let whole = text.get(bytes.clone()).is_some();
        let follows = (last.start..=last.end).contains(&bytes.start) && bytes.end >= last.end;
        assert!(
            whole && follows,
            "{name}, {text:?}: {bytes:?} after {last:?}"
        );
        last = bytes.clone();
    }
    assert_eq!(last.end, text.len(), "{name}, {text:?}: {tokens:?}");
    tokens
}

#[test]
fn tokens_stand_for_the_whole_text() {
    for case in CASES {
        let tokenizer = Checkpoint::open(&fixture(case))
            .unwrap()
            .tokenizer()
            .unwrap();
        for text in TEXTS {
            assert_offsets(case, &tokenizer, text);
        }
        for text in expected(case)["tokens"].as_object().unwrap().values() {
            assert_offsets(case, &tokenizer, text["text"].as_str().unwrap());
        }
        let alone: Vec<_> = TEXTS
            .iter()
            .map(|text| tokenizer.encode_with_offsets(text).unwrap())
            .collect();
        assert_eq!(tokenizer.encode_batch_with_offsets(&TEXTS).unwrap(), alone);
    }
    let (_dir, path) = GgufFile::of_fixture("llama_gqa").write();
    let tokenizer = Checkpoint::open(&path).unwrap().tokenizer().unwrap();
    for text in TEXTS {
        assert_offsets("gguf", &tokenizer, text);
    }
    for model in ["llama", "bpe_defined"] {
        let tokenizer = sentencepiece::open(&sentencepiece::sandbox(model)).unwrap();
        for text in TEXTS {
            assert_offsets(model, &tokenizer, text);
        }
    }
}

/// A byte-level post-processor would leave the spaces out.
#[test]
fn spaces_belong_to_their_token_whatever_the_post_processor_says() {
    let sandbox = Sandbox::of("llama_gqa");
    sandbox.edit_json("tokenizer.json", |tokenizer| {
        let byte_level = serde_json::json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true
        });
        let template = tokenizer["post_processor"].take();
        tokenizer["post_processor"] =
            serde_json::json!({"type": "Sequence", "processors": [byte_level, template]});
    });
    let tokenizer = Checkpoint::open(sandbox.path())
        .unwrap()
        .tokenizer()
        .unwrap();
    assert!(tokenizer.adds_bos());
    let tokens = assert_offsets("trimming", &tokenizer, "the ferry   leaves");
    assert!(tokens.len() > 3);
}
