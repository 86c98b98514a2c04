//! The memory of a micro-batch and of loading, against what is said of it beforehand.
//!
//! Each case runs in a process of its own, this test program once more, so that its peak is its
//! own. The checkpoints are holes: a header, and zeros that lie on no disk.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use assay_api::{Dtype, ErrorCode};
use assay_checkpoint::Checkpoint;
use assay_decoder::{Decoder, Products, Sequence, runtime, weight_bytes};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tch::Device;
use tempfile::TempDir;

/// The index of the case that this process is to measure.
const CASE: &str = "ASSAY_TEST_MEMORY_CASE";

/// A model and a micro-batch.
struct Case {
    what: &'static str,
    dtype: Dtype,
    hidden: usize,
    intermediate: usize,
    /// Query heads, key heads, width.
    heads: (usize, usize, usize),
    vocab_size: usize,
    windows: &'static [usize],
}

/// Each is large where another is small, so that no part of the estimate hides behind the rest.
const CASES: [Case; 6] = [
    Case {
        what: "the demo's shape",
        dtype: Dtype::Float32,
        hidden: 576,
        intermediate: 1536,
        heads: (9, 3, 64),
        vocab_size: 49_152,
        windows: &[2048, 2048, 1000, 999],
    },
    Case {
        what: "the demo's shape in bfloat16",
        dtype: Dtype::Bfloat16,
        hidden: 576,
        intermediate: 1536,
        heads: (9, 3, 64),
        vocab_size: 49_152,
        windows: &[2048, 2048, 1000, 999],
    },
    Case {
        what: "a head and little else",
        dtype: Dtype::Float32,
        hidden: 64,
        intermediate: 64,
        heads: (2, 2, 32),
        vocab_size: 120_000,
        windows: &[64],
    },
    Case {
        what: "a wide MLP",
        dtype: Dtype::Float32,
        hidden: 128,
        intermediate: 4096,
        heads: (2, 1, 64),
        vocab_size: 300,
        windows: &[512; 8],
    },
    Case {
        what: "many heads",
        dtype: Dtype::Float32,
        hidden: 256,
        intermediate: 128,
        heads: (32, 4, 64),
        vocab_size: 300,
        windows: &[4096],
    },
    Case {
        what: "many rows of a narrow model",
        dtype: Dtype::Bfloat16,
        hidden: 64,
        intermediate: 128,
        heads: (4, 2, 16),
        vocab_size: 300,
        windows: &[256; 128],
    },
];

impl Case {
    /// Writes the checkpoint below `directory`, with two blocks and a tied head.
    fn write(&self, directory: &Path) {
        let (heads, kv_heads, head_dim) = self.heads;
        let config = json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": 2,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": true,
            "torch_dtype": "bfloat16",
        });
        fs::write(directory.join("config.json"), config.to_string()).unwrap();

        let mut header = serde_json::Map::new();
        let mut end = 0;
        let mut add = |name: String, shape: &[usize]| {
            let start = end;
            end += 2 * shape.iter().product::<usize>();
            let tensor = json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, end]});
            header.insert(name, tensor);
        };
        add(
            "model.embed_tokens.weight".to_owned(),
            &[self.vocab_size, self.hidden],
        );
        add("model.norm.weight".to_owned(), &[self.hidden]);
        for layer in 0..2 {
            let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
            for (name, shape) in [
                ("input_layernorm", vec![self.hidden]),
                ("post_attention_layernorm", vec![self.hidden]),
                ("self_attn.q_proj", vec![queries, self.hidden]),
                ("self_attn.k_proj", vec![keys, self.hidden]),
                ("self_attn.v_proj", vec![keys, self.hidden]),
                ("self_attn.o_proj", vec![self.hidden, queries]),
                ("mlp.gate_proj", vec![self.intermediate, self.hidden]),
                ("mlp.up_proj", vec![self.intermediate, self.hidden]),
                ("mlp.down_proj", vec![self.hidden, self.intermediate]),
            ] {
                add(format!("model.layers.{layer}.{name}.weight"), &shape);
            }
        }
        let header = Value::Object(header).to_string();
        let mut file = File::create(directory.join("model.safetensors")).unwrap();
        file.write_all(&(header.len() as u64).to_le_bytes())
            .unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.set_len((8 + header.len() + end) as u64).unwrap();
    }

    fn load(&self, own: bool) -> (TempDir, Checkpoint, Decoder) {
        let directory = tempfile::tempdir().unwrap();
        self.write(directory.path());
        runtime::init(1).unwrap();
        let checkpoint = Checkpoint::open(directory.path()).unwrap();
        let decoder = if own {
            Decoder::load(&checkpoint, self.dtype, Device::Cpu)
        } else {
            Decoder::load_with(&checkpoint, self.dtype, Device::Cpu, Products::Libtorch)
        };
        let decoder = decoder.unwrap();
        (directory, checkpoint, decoder)
    }

    /// Few positions count, to be fast: logits take the same memory for one as for many.
    fn micro_batch(&self) -> Vec<Sequence> {
        let sequence = |&len: &usize| Sequence {
            input: vec![1; len],
            positions: (0..16).collect(),
            targets: vec![2; 16],
        };
        self.windows.iter().map(sequence).collect()
    }

    /// Measures, in a process of its own, and holds the estimates against it.
    ///
    /// `own`: with kernels of our own where there are some; else libtorch multiplies.
    fn measure(&self, own: bool) {
        runtime::init(1).unwrap();
        let before = status("RssAnon:");
        let (_directory, checkpoint, decoder) = self.load(own);
        let loaded = status("RssAnon:") - before;
        let weights = weight_bytes(&checkpoint, self.dtype);
        println!("{}: weights {loaded} of {weights}", self.what);
        assert!(
            loaded <= weights + (4 << 20),
            "{}: {loaded} of {weights}",
            self.what
        );

        let micro_batch = self.micro_batch();
        // Code and tables of libtorch come into memory with the first call.
        decoder.score(&micro_batch).unwrap();
        let before = status("VmRSS:");
        fs::write("/proc/self/clear_refs", "5").unwrap(); // the peak starts anew
        let values = decoder.score(&micro_batch).unwrap();
        let used = status("VmHWM:") - before;
        let estimate = decoder.memory_needed(self.windows.iter().copied());
        println!("{}: activations {used} of {estimate}", self.what);
        assert!(used <= estimate, "{}: {used} of {estimate}", self.what);
        // What is asked for besides, in case libtorch wants it for a product.
        let workspace = 3 << 19;
        assert!(
            estimate <= 2 * used + workspace,
            "{}: {used} of {estimate}",
            self.what
        );
        // All weights are zero: every token is as likely as any other.
        let expected = (self.vocab_size as f64).ln();
        assert!(
            values
                .iter()
                .flatten()
                .all(|nll| (nll - expected).abs() < 1e-6)
        );
    }
}

/// A field of this process's status, in bytes.
fn status(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kibibytes * 1024
}

/// Runs a test of this program in a process of its own.
fn alone(name: &str, index: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", name])
        .env(CASE, index)
        // glibc gives back what is freed, so that the resident set is what is in use.
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .env("MALLOC_TRIM_THRESHOLD_", "65536")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{index}: {text}{errors}");
    text
}

#[test]
fn what_is_said_is_enough_and_not_twice_what_is_used() {
    if let Ok(index) = std::env::var(CASE) {
        let index: usize = index.parse().unwrap();
        CASES[index / 2].measure(index.is_multiple_of(2));
        return;
    }
    for (number, case) in CASES.iter().flat_map(|case| [case, case]).enumerate() {
        let name = "what_is_said_is_enough_and_not_twice_what_is_used";
        let printed = alone(name, &number.to_string());
        println!("{printed}");
        assert!(printed.contains(case.what), "{printed}");
    }
}

/// Wherever memory ends, the error says so, and the decoder goes on when there is some again.
#[test]
fn an_allocation_that_fails_is_out_of_memory() {
    if std::env::var(CASE).is_err() {
        let text = alone("an_allocation_that_fails_is_out_of_memory", "any");
        println!("{text}");
        assert!(text.contains("out of memory"), "{text}");
        return;
    }
    let (_directory, _, decoder) = CASES[3].load(true);
    let micro_batch = CASES[3].micro_batch();
    let wanted = decoder.score(&micro_batch).unwrap();
    let unlimited = getrlimit(Resource::As);
    let mut failed = 0;
    for left in (0..).map(|step: u64| step * 7_654_321) {
        let current = Some(status("VmSize:") + left);
        setrlimit(
            Resource::As,
            Rlimit {
                current,
                ..unlimited
            },
        )
        .unwrap();
        let result = decoder.score(&micro_batch);
        setrlimit(Resource::As, unlimited).unwrap();
        match result {
            Ok(values) => {
                assert_eq!(values, wanted);
                break;
            }
            Err(error) => {
                println!("{left}: {error}");
                assert_eq!(error.code(), ErrorCode::OutOfMemory, "{left}: {error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 5, "{failed}");
    assert_eq!(decoder.score(&micro_batch).unwrap(), wanted);
}
