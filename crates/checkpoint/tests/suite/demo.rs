//! The demo checkpoint, where `ASSAY_DEMO_MODEL` says where it lies.

use std::path::Path;

use assay_checkpoint::{Checkpoint, Place, Slot};

#[test]
fn the_demo_checkpoint_opens_and_cuts_digits_off() {
    let Ok(path) = std::env::var("ASSAY_DEMO_MODEL") else {
        println!("skipped: ASSAY_DEMO_MODEL does not name the demo checkpoint");
        return;
    };
    let checkpoint = Checkpoint::open(Path::new(&path)).unwrap();
    assert_eq!(checkpoint.parameters(), 134_515_008);
    assert!(!checkpoint.has(Slot::model(Place::Head)));
    let architecture = checkpoint.architecture();
    assert_eq!((architecture.blocks.len(), architecture.head_dim), (30, 64));
    let tokenizer = checkpoint.tokenizer().unwrap();
    assert!(!tokenizer.adds_bos());
    assert_eq!(
        (tokenizer.prefix().unwrap(), tokenizer.vocab_size()),
        (1, 49_152)
    );
    // Every digit is a token, and the space before ½ is not joined to it.
    assert_eq!(tokenizer.encode("1851").unwrap().len(), 4);
    assert_eq!(tokenizer.encode("4 ½").unwrap(), [36, 216, 16_738]);
    let messages = serde_json::json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where to?"},
        {"role": "assistant", "content": "To the island."},
    ]);
    let template = checkpoint.chat_template().unwrap().unwrap();
    let rendered = template.render(&messages, true).unwrap();
    assert_eq!(
        rendered.text,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhere to?<|im_end|>\n\
         <|im_start|>assistant\nTo the island.<|im_end|>\n"
    );
    let said = rendered
        .assistant
        .iter()
        .map(|range| &rendered.text[range.clone()]);
    assert_eq!(said.collect::<Vec<_>>(), ["To the island.<|im_end|>\n"]);
}
