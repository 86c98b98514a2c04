//! `assay submit`.

use std::process::ExitCode;

use assay_api::{Convention, DatasetRef, DtypeRequest, Job, JobRequest, JobState, MethodRequest};
use clap::ValueEnum;
use reqwest::Method;

use crate::client::{Answer, Client, ClientError, Retry, ServerArgs};
use crate::{EXIT_CODES, Outcome, exit, follow, output, results};

/// Post a job; with --wait, follow it and print its results.
///
/// Prints the job's id. With --wait a progress bar follows on stderr, and the table of results
/// when the job has succeeded.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Submit {
    /// Checkpoint: a path below the server's model root
    #[arg(long, value_name = "PATH")]
    model: String,
    /// Dataset: a path below the server's data root; may be given again
    #[arg(long = "dataset", value_name = "PATH", required = true)]
    datasets: Vec<String>,
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// Tokens in a window [default: 2048 or the model's positions, if fewer]
    #[arg(long, value_name = "TOKENS")]
    window: Option<u32>,
    /// Dtype of the computation
    #[arg(long, value_enum, default_value_t = DtypeArg::Auto)]
    dtype: DtypeArg,
    /// A label; may be given again
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
    /// Take this many documents of each dataset at most
    #[arg(long, value_name = "N")]
    limit_documents: Option<u64>,
    /// Take whole documents of each dataset until this many tokens are reached
    #[arg(long, value_name = "N")]
    limit_tokens: Option<u64>,
    /// Wait until the job has ended
    #[arg(long)]
    wait: bool,
    /// Print the server's JSON: the job; with --wait the results, or the job if it did not succeed
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DtypeArg {
    /// As the checkpoint: bfloat16 for bfloat16, float32 for all others
    Auto,
    Float32,
    Bfloat16,
}

impl From<DtypeArg> for DtypeRequest {
    fn from(dtype: DtypeArg) -> Self {
        match dtype {
            DtypeArg::Auto => Self::Auto,
            DtypeArg::Float32 => Self::Float32,
            DtypeArg::Bfloat16 => Self::Bfloat16,
        }
    }
}

fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a tag is KEY=VALUE, such as branch=main".to_owned()),
    }
}

impl Submit {
    fn request(&self) -> JobRequest {
        let dataset = |path: &String| DatasetRef {
            limit_documents: self.limit_documents,
            limit_tokens: self.limit_tokens,
            ..DatasetRef::at(path)
        };
        JobRequest {
            name: self.name.clone(),
            model: self.model.clone(),
            datasets: self.datasets.iter().map(dataset).collect(),
            method: MethodRequest {
                convention: Convention::default(),
                window: self.window,
            },
            dtype: self.dtype.into(),
            tags: self.tags.iter().cloned().collect(),
        }
    }
}

pub(crate) async fn run(submit: &Submit) -> Outcome {
    let client = submit.server.client();
    let created = post(&client, &submit.request()).await?;
    if !submit.json {
        output::line(created.value.id);
    }
    if !submit.wait {
        if submit.json {
            output::line(created.text);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let ended = follow::follow(&client, created.value).await?;
    let job = &ended.value;
    if job.state == JobState::Succeeded {
        results::print(&client, job.id, submit.json, Retry::Always).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if submit.json {
        output::line(ended.text);
    }
    eprintln!("assay: {}", why_ended(job));
    Ok(ExitCode::from(exit::JOB_NOT_SUCCEEDED))
}

/// Posts the job under a key of its own, so that sending it again makes no second job.
async fn post(client: &Client, request: &JobRequest) -> Result<Answer<Job>, ClientError> {
    let key = uuid::Uuid::new_v4().to_string();
    client
        .call(Method::POST, "/jobs", Retry::Interrupted, |http| {
            http.header("Idempotency-Key", &key).json(request)
        })
        .await
}

fn why_ended(job: &Job) -> String {
    let Some(error) = &job.error else {
        return format!("the job was {}", job.state.as_str());
    };
    let field = error
        .field
        .as_ref()
        .map(|field| format!("{field}: "))
        .unwrap_or_default();
    let shard = error
        .shard
        .as_ref()
        .map(|shard| format!(" (shard {} on {})", shard.shard, shard.worker))
        .unwrap_or_default();
    format!(
        "the job {} ({}): {field}{}{shard}",
        job.state.as_str(),
        error.code,
        error.detail
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_needs_a_key() {
        assert_eq!(
            tag("branch=a=b"),
            Ok(("branch".to_owned(), "a=b".to_owned()))
        );
        assert!(tag("branch").is_err());
        assert!(tag("=x").is_err());
    }
}
