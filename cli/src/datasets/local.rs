//! Looks at a dataset on this machine.

use std::path::Path;

use assay_api::{DatasetFormat, DatasetInspection, DatasetInspectionRequest};
use assay_checkpoint::{Checkpoint, DigestCache};
use assay_data::Source;

use crate::failure::Failure;

/// Counts the dataset; `model` is a path on this machine too.
pub(super) fn inspect(request: &DatasetInspectionRequest) -> Result<DatasetInspection, Failure> {
    if let Some(upload) = &request.dataset.upload {
        return Err(Failure::Usage(format!(
            "the upload {upload:?} is on the server; look at it with --remote"
        )));
    }
    if request.dataset.format == Some(DatasetFormat::Chat) && request.model.is_none() {
        return Err(Failure::Usage(
            "the text of chats is made by a checkpoint's template; name one with --model"
                .to_owned(),
        ));
    }
    let source = Source::local(&request.dataset).map_err(|error| failed(&error))?;
    let checkpoint = request.model.as_ref().map(Path::new).map(Checkpoint::open);
    let checkpoint = checkpoint.transpose().map_err(|error| failed(&error))?;
    let (tokenizer, chat) = match &checkpoint {
        Some(checkpoint) => {
            let tokenizer = checkpoint.tokenizer().map_err(|error| failed(&error))?;
            let chat = match source.format() {
                DatasetFormat::Chat => {
                    let template = checkpoint.chat_template().map_err(|error| failed(&error))?;
                    Some(template.ok_or_else(|| {
                        Failure::Failed(
                            "the checkpoint has no chat template, which a chat needs".to_owned(),
                        )
                    })?)
                }
                _ => None,
            };
            (Some(tokenizer), chat)
        }
        None => (None, None),
    };
    // Digests are remembered for the files of a service; here they are taken once.
    let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
    let digests = DigestCache::new(folder.path());
    assay_data::inspect(
        &source,
        tokenizer.as_ref(),
        chat.as_ref(),
        &digests,
        &|| false,
    )
    .map_err(|error| failed(&error))
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}
