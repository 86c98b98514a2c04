//! `assay inspect`.

use std::path::PathBuf;
use std::process::ExitCode;

use assay_api::{ModelInspection, Token};
use assay_checkpoint::Checkpoint;

use crate::client::{Retry, ServerArgs, with_query};
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::numbers::{bytes, grouped};
use crate::output;

/// Say what a checkpoint is: its family, size, dtypes, tokenizer and chat template.
///
/// Reads the headers and the tokenizer on this machine, no weights; no server is needed. A
/// checkpoint that jobs would be refused for is refused here, with the same reason.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Inspect {
    /// The checkpoint: a directory as transformers writes it, or a .gguf file
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// A LoRA adapter to add to it: a directory as PEFT writes it
    #[arg(long, value_name = "PATH")]
    adapter: Option<PathBuf>,
    /// Let the server look: PATH is below its model root
    #[arg(long)]
    remote: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(inspect: &Inspect) -> Outcome {
    let path = inspect.path.display().to_string();
    let (text, model) = if inspect.remote {
        let adapter = inspect.adapter.as_ref();
        let adapter = adapter.map(|adapter| adapter.display().to_string());
        let query = [("path", Some(path)), ("adapter", adapter)];
        let url = with_query("/models/inspect", &query);
        let client = inspect.server.client()?.patient();
        let answer = client
            .get::<ModelInspection>(&url, Retry::Interrupted)
            .await?;
        (answer.text, answer.value)
    } else {
        let model = Checkpoint::open_with(&inspect.path, inspect.adapter.as_deref())
            .and_then(|checkpoint| assay_checkpoint::inspect(&checkpoint, &path))
            .map_err(|error| Failure::Failed(error.to_string()))?;
        (output::to_json(&model), model)
    };
    output::line(if inspect.json {
        text
    } else {
        render(&model, output::width())
    });
    Ok(ExitCode::SUCCESS)
}

fn render(model: &ModelInspection, width: Option<usize>) -> String {
    let tokenizer = &model.tokenizer;
    let stored = model.stored.iter();
    let stored = stored.map(|one| format!("{} in {}", grouped(one.parameters), one.dtype));
    let memory = model.memory.iter().map(|need| {
        let auto = if need.dtype == model.dtype {
            ", the default"
        } else {
            ""
        };
        format!(
            "{} for weights in {}{auto}",
            bytes(need.weight_bytes),
            need.dtype.as_str()
        )
    });
    let files = model.files.iter();
    let special = |name: &str, token: &Option<Token>| match token {
        Some(token) => format!("{name} {} {:?}", token.id, token.text),
        None => format!("no {name}"),
    };
    let adds = if tokenizer.adds_bos {
        "adds a BOS"
    } else {
        "adds no BOS"
    };
    let template = tokenizer.chat_template.as_deref();
    // Labels of six letters leave room for a digest in 80 columns.
    let facts = [
        (
            "path",
            match &model.adapter {
                Some(adapter) => vec![model.path.clone(), format!("adapter {adapter}")],
                None => vec![model.path.clone()],
            },
        ),
        (
            "model",
            vec![format!(
                "{}, {} parameters",
                model.family,
                grouped(model.parameters)
            )],
        ),
        ("stored", stored.collect()),
        ("memory", memory.collect()),
        (
            "window",
            vec![format!("{} tokens at most", grouped(model.max_positions))],
        ),
        ("shape", shape(model)),
        (
            "files",
            files
                .map(|file| format!("{}, {}", file.name, bytes(file.bytes)))
                .collect(),
        ),
        (
            "tokens",
            vec![
                format!(
                    "{}, {} tokens",
                    tokenizer.kind,
                    grouped(tokenizer.vocab_size)
                ),
                format!(
                    "{}, {}, {adds}",
                    special("BOS", &tokenizer.bos),
                    special("EOS", &tokenizer.eos)
                ),
                tokenizer.digest.clone(),
            ],
        ),
        ("chat", vec![template.unwrap_or("no template").to_owned()]),
    ];
    let mut lines = vec![output::facts(&facts, width)];
    for warning in &model.warnings {
        lines.push(output::labelled("warning: ", warning, width));
    }
    lines.join("\n")
}

fn shape(model: &ModelInspection) -> Vec<String> {
    let head = if model.tied_head {
        "the head is the embedding"
    } else {
        "a head of its own"
    };
    vec![format!(
        "{} layers of width {}; {} heads, {} of keys and values; vocabulary {}; {head}",
        model.layers,
        grouped(model.hidden_size),
        model.heads,
        model.key_value_heads,
        grouped(model.vocab_size)
    )]
}
