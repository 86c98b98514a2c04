"""What the API takes and answers, generated from its description by generate.py."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

from typing_extensions import NotRequired


class AdaptedModel(TypedDict):
    """
    A checkpoint and an adapter, as they travel.
    """

    adapter: NotRequired[str | None]
    """
    Path of a LoRA adapter below the model root: a directory with adapter_config.json and
    adapter_model.safetensors, as PEFT writes it. It is added to the weights as they are
    loaded; tokenizer and chat template are the checkpoint's own.
    """
    path: str
    """
    Path of the checkpoint below the model root: a directory as transformers writes it, or a
    `.gguf` file.
    """


BaselineRequest: TypeAlias = Literal['auto', 'measure', 'skip']
"""
Whether one device computes a sample of a job alone first.
"""


BaselineSource: TypeAlias = Literal['measured', 'calibrated']
"""
Where a baseline is from.
"""


Bos: TypeAlias = Literal['auto', 'always', 'never']
"""
Whether a BOS stands in front of the joined text (`llamacpp`: of each block). It is never
scored, and there are never two.
"""


Convention: TypeAlias = Literal['rolling', 'blocks', 'strided', 'llamacpp']
"""
How text becomes windows and counted spans.

Under `rolling` each document is scored alone. The others score all documents of a dataset as
one text, joined by `join` and tokenized whole; there a token belongs to the document that
holds its first byte, a separator to the document before it.
"""


DatasetFormat: TypeAlias = Literal['text', 'jsonl', 'parquet', 'chat', 'pairs']
"""
What the documents of a dataset are.

How a file holds them follows from its name: JSON lines, or Parquet for `.parquet`; with `.gz`
or `.zst` behind, compressed.
"""


class Deadlines(TypedDict):
    """
    How long a job may take. One that takes longer fails; what is computed by then stays.
    """

    queue_seconds: NotRequired[int | None]
    """
    Seconds from the post of the job until a worker first takes it up; later than that it fails
    with `E1003`.
    """
    run_seconds: NotRequired[int | None]
    """
    Seconds from then until its end, whatever is lost and repeated meanwhile; later than that it
    fails with `E1004`, and its running shards are stopped.
    """


class DevicePerformance(TypedDict):
    """
    What one device did for a job.
    """

    busy_seconds: float
    """
    Seconds it computed, for results that came too late or were taken back too; not for attempts
    without a result.
    """
    claim_seconds: float
    """
    Seconds it waited for its claims, and until its results were taken to be counted.
    """
    commit_seconds: float
    """
    Seconds its results waited until they were counted; it computes meanwhile.
    """
    device: str
    """
    The device, as given to the worker.
    """
    device_kind: str
    """
    Its device kind.
    """
    idle_seconds: float
    """
    Seconds between its first claim and the end of the job in which it did none of these.
    """
    load_seconds: float
    """
    Seconds it loaded the model, and in an adaptive job scored a part in the job's dtype.
    """
    shards: int
    """
    Shards counted.
    """
    tokens: int
    """
    Tokens counted.
    """
    worker: str
    """
    Name of its worker.
    """


class DocumentChange(TypedDict):
    """
    A document in both jobs.
    """

    baseline_mean_nll: float
    """
    Mean NLL in the baseline, in nats per unit.
    """
    candidate_mean_nll: float
    """
    Mean NLL in the candidate.
    """
    difference: float
    """
    Candidate minus baseline.
    """
    group: NotRequired[str | None]
    """
    Its group, if the candidate has groups.
    """
    index: int
    """
    Index of the document in the dataset, from 0.
    """
    units: int
    """
    Tokens or bytes that the means are over.
    """


class DocumentRow(TypedDict):
    """
    One row of `GET /jobs/{id}/documents`.
    """

    bytes: int
    """
    Bytes in UTF-8.
    """
    group: NotRequired[str | None]
    """
    Its group, if `group_by` was asked for.
    """
    index: int
    """
    Index of the document in the dataset, from 0.
    """
    nll: float
    """
    Summed negative log-likelihood in nats.
    """
    nll_exact: int
    """
    The same sum as an exact integer in units of 2^-32 nat.
    """
    scored_tokens: int
    """
    Tokens counted.
    """
    tokens: int
    """
    Tokens of the document.
    """
    words: int
    """
    Words, as Python's `len(re.split(r"\\s+", text))`.
    """


class Download(TypedDict):
    """
    How far the files of a job are fetched from a hub.
    """

    bytes: int
    """
    Bytes that are there.
    """
    total_bytes: int
    """
    Bytes of all files.
    """


Dtype: TypeAlias = Literal['float32', 'bfloat16']
"""
The dtype of the computation.
"""


DtypeRequest: TypeAlias = Literal['auto', 'float32', 'bfloat16']
"""
The dtype a request asks for.
"""


ErrorCode: TypeAlias = Literal['E0001', 'E0002', 'E0003', 'E0004', 'E0005', 'E0006', 'E0007', 'E0008', 'E0009', 'E0010', 'E0011', 'E0012', 'E0013', 'E0014', 'E0015', 'E0016', 'E0017', 'E0018', 'E1001', 'E1002', 'E1003', 'E1004', 'E2001', 'E2002', 'E2003', 'E2004', 'E3001', 'E3002', 'E3003', 'E3004', 'E4001', 'E4002', 'E4003', 'E4004', 'E4005', 'E4006', 'E4007', 'E4008', 'E5001', 'E5002', 'E5003', 'E5004', 'E5005', 'E5006', 'E5007']
"""
Names an error to programs; `GET /errors` explains each.

* `E0001` Internal error
* `E0002` Not found
* `E0003` Invalid request
* `E0004` Malformed JSON
* `E0005` Idempotency key reused with another body
* `E0006` Payload too large
* `E0007` Method not allowed
* `E0008` Unsupported media type
* `E0009` Temporarily unavailable
* `E0010` Request timed out
* `E0011` Job has ended
* `E0012` Job has not ended
* `E0013` No room on the disk
* `E0014` Jobs cannot be compared
* `E0015` A valid key is needed
* `E0016` Not allowed
* `E0017` Quota exceeded
* `E0018` Too many requests
* `E1001` Database unreachable
* `E1002` Workers were lost too often
* `E1003` Not taken up in time
* `E1004` Not done in time
* `E2001` Computation failed
* `E2002` Out of memory
* `E2003` Not a finite number
* `E2004` NLL out of range
* `E3001` Checkpoint differs between nodes
* `E3002` Data differs between nodes
* `E3003` Audit without a majority
* `E3004` Counts disagree with the plan
* `E4001` Path outside the root
* `E4002` Dataset cannot be read
* `E4003` Dataset is not valid
* `E4004` Dataset has nothing to score
* `E4005` Method does not fit
* `E4006` Tokenizer has no prefix token
* `E4007` Chat template refuses a document
* `E4008` No hub is used
* `E5001` Checkpoint cannot be read
* `E5002` Architecture not supported
* `E5003` Tensors do not match the configuration
* `E5004` Pickle checkpoints are refused
* `E5005` Tokenizer cannot be used
* `E5006` Dtype not supported
* `E5007` Chat template cannot be used
"""


class FieldError(TypedDict):
    """
    One field that is wrong.
    """

    detail: str
    """
    What is wrong with it and what would be right.
    """
    field: str
    """
    Path of the field in the body, such as `datasets[0].field`.
    """


class Gate(TypedDict):
    """
    The gate of a job: what was asked for, the baseline resolved.
    """

    baseline: str
    """
    The job it is compared with.
    """
    datasets: NotRequired[list[str]]
    """
    Names of the datasets that are judged; all of them if empty.
    """
    max_increase: float
    """
    The largest increase of the mean NLL that passes, in nats per token of the baseline.
    """


class GroupResult(TypedDict):
    """
    The numbers of one group of documents.
    """

    confidence_95: NotRequired[float | None]
    """
    Half-width of the 95 % confidence interval of the mean NLL, t(G-1).
    """
    documents: int
    """
    Documents.
    """
    macro_perplexity: NotRequired[float | None]
    """
    exp of the mean over documents of their mean NLL.
    """
    name: str
    """
    The value that its documents have in the field.
    """
    nll: float
    """
    Summed negative log-likelihood in nats.
    """
    nll_exact: int
    """
    The same sum as an exact integer in units of 2^-32 nat.
    """
    perplexity: NotRequired[float | None]
    """
    exp(nll / scored_tokens); null if it overflows or nothing is counted.
    """
    scored_tokens: int
    """
    Tokens counted.
    """
    standard_error: NotRequired[float | None]
    """
    Standard error of the mean NLL in nats per token, clustered by document; null under 5
    documents with counted tokens.
    """


JobState: TypeAlias = Literal['queued', 'planning', 'running', 'succeeded', 'failed', 'cancelled']
"""
The states of a job.
"""


class ModelFacts(TypedDict):
    """
    Facts of a checkpoint.
    """

    adapter: NotRequired[str | None]
    """
    Path of the LoRA adapter below the model root, if one was added.
    """
    digest: str
    """
    `sha256:` of the weight files, those of an adapter among them.
    """
    family: str
    """
    Family, such as `llama`.
    """
    parameters: int
    """
    Parameters; tied weights count once.
    """
    path: str
    """
    Path below the model root.
    """


ModelRef: TypeAlias = str | AdaptedModel
"""
Path of a checkpoint below the model root, or an object with it and a LoRA adapter.
"""


Numerics: TypeAlias = Literal['uniform', 'adaptive']
"""
Whether all devices compute in the job's dtype.
"""


class PairedDifference(TypedDict):
    """
    A difference of means over the same text. Clusters are documents; with one document that has
    counted tokens, its 50 equal spans.
    """

    baseline_mean_nll: NotRequired[float | None]
    """
    Mean NLL of the baseline in nats per unit; null if nothing is counted.
    """
    better: int
    """
    Clusters whose NLL fell.
    """
    candidate_mean_nll: NotRequired[float | None]
    """
    Mean NLL of the candidate in nats per unit.
    """
    clusters: int
    """
    Clusters with counted tokens, the G of the standard error.
    """
    confidence_95: NotRequired[float | None]
    """
    Half-width of the 95 % confidence interval of the difference, t(G-1); null with
    `standard_error`.
    """
    difference: NotRequired[float | None]
    """
    Candidate minus baseline, in nats per unit: the exact difference of the sums over the units.
    """
    documents: int
    """
    Documents.
    """
    equal: int
    """
    Clusters whose NLL is the same to the last unit of 2^-32 nat.
    """
    nll_difference_exact: int
    """
    Candidate minus baseline of the sums, an exact integer in units of 2^-32 nat.
    """
    perplexity_ratio: NotRequired[float | None]
    """
    exp(difference): the candidate's perplexity over the baseline's; null if it overflows.
    """
    sign_test_p: float
    """
    Two-sided p of the sign test: how likely `worse` and `better` are at least as uneven if a
    cluster rises as often as it falls. Exact, equal ones left out.
    """
    standard_error: NotRequired[float | None]
    """
    Standard error of the difference, clustered: of the differences and not of the means, whose
    errors are far larger and mostly shared. Null under 5 clusters.
    """
    units: int
    """
    Tokens or bytes that the means are over.
    """
    worse: int
    """
    Clusters whose NLL rose.
    """


class PrecisionEffect(TypedDict):
    """
    How far the job's numbers are from what they would be if all of it were computed in its dtype
    (positive: higher). An estimate from what was scored in both: each device that computes in
    another dtype does so with the first micro-batch it gets.
    """

    compared_tokens: int
    """
    Tokens scored in both.
    """
    nll_per_token: float
    """
    The mean difference (other dtype less the job's) in nats per token, times the share of the
    job's tokens that are counted in another dtype.
    """
    perplexity_factor: float
    """
    exp(nll_per_token): the factor by which the perplexity over all tokens of the job is changed.
    """
    standard_error: NotRequired[float | None]
    """
    Its standard error, in nats per token; null under two tokens. Differences of tokens are
    taken as independent.
    """


class PrecisionShare(TypedDict):
    """
    What devices of a kind computed in a dtype.
    """

    device_kind: str
    """
    The device kind.
    """
    dtype: Dtype
    """
    The dtype.
    """
    share: float
    """
    Over all tokens that the job has counted of shards of its own.
    """
    tokens: int
    """
    Tokens counted.
    """


class Problem(TypedDict):
    """
    An error answer (RFC 9457).
    """

    code: ErrorCode
    """
    The code, for programs.
    """
    detail: str
    """
    What happened here and what to do about it.
    """
    errors: NotRequired[list[FieldError]]
    """
    The fields at fault, where there are some.
    """
    request_id: NotRequired[str | None]
    """
    The id under which the log has this request.
    """
    status: int
    """
    The HTTP status.
    """
    title: str
    """
    A short sentence that is the same for every occurrence of the code.
    """
    type: str
    """
    A URI reference that names the kind of problem.
    """


class Sample(TypedDict):
    """
    A reproducible sample of documents.

    Of the documents 0, 1, .. the `documents` with the smallest keys are taken, in their order; the
    key of document i is SHA-256 over `seed` and i, each as 8 bytes, little endian.
    """

    documents: int
    """
    Documents to take; all, if the dataset has fewer.
    """
    seed: NotRequired[int]
    """
    Another seed, another sample.
    """


Score: TypeAlias = Literal['all', 'assistant', 'response']
"""
Which tokens of a document count.
"""


class ShardLocation(TypedDict):
    """
    A shard, and the worker that last ran it.
    """

    shard: int
    """
    Index of the shard in the job.
    """
    worker: str
    """
    Name of the worker.
    """


class Spread(TypedDict):
    """
    How even some times are, in seconds.
    """

    max: float
    """
    The largest.
    """
    mean: float
    """
    The mean.
    """
    standard_deviation: float
    """
    The standard deviation of all of them (not of a sample).
    """


class TaggedJob(TypedDict):
    """
    A tag, as it travels.
    """

    tag: str
    """
    `key:value`: the newest succeeded job with this tag, of those that are older than the job it
    is held against.
    """


Tail: TypeAlias = Literal['drop', 'score']
"""
What becomes of the shorter block at the end.
"""


class TokenRow(TypedDict):
    """
    One token of `GET /jobs/{id}/tokens`: a token that some window predicts.

    The first token of a block, a dropped tail and a BOS are predicted by none and not listed.
    """

    end: int
    """
    Offset after its last byte. The last token of a document may end in the separator or in
    the next document, under a joined convention.
    """
    id: int
    """
    Its id.
    """
    index: int
    """
    Index of the token in the document, from 0.
    """
    nll: NotRequired[float | None]
    """
    Its negative log-likelihood in nats; null if it does not count.
    """
    nll_exact: NotRequired[int | None]
    """
    The same as an exact integer in units of 2^-32 nat.
    """
    start: int
    """
    Offset of its first byte in the document's text.
    """


class TokenizerFacts(TypedDict):
    """
    Facts of a tokenizer.
    """

    adds_bos: bool
    """
    Whether the tokenizer's post-processor puts a BOS in front.
    """
    chat_template: NotRequired[str | None]
    """
    `sha256:` of the chat template, if a dataset was rendered by it.
    """
    digest: str
    """
    `sha256:` of the tokenizer.
    """
    first_token_ids: list[int]
    """
    The first input ids of the first dataset (8 at most), prefix included, as the model saw them.
    """


Unit: TypeAlias = Literal['token', 'byte']
"""
What a mean NLL is a mean over.
"""


class Upload(TypedDict):
    """
    A dataset that was uploaded.

    The name stands for the latest upload under it; a job keeps the one it was posted with.
    """

    bytes: int
    """
    Its size.
    """
    created_at: str
    """
    When it was uploaded.
    """
    digest: str
    """
    `sha256:` of its bytes.
    """
    name: str
    """
    The name, whose ending tells the format like that of a file.
    """


Verdict: TypeAlias = Literal['pass', 'fail', 'inconclusive']
"""
What a gate says.
"""


WaitingCode: TypeAlias = Literal['no_worker', 'no_worker_in_service']
"""
Why a job that has not ended cannot go on.
"""


class Webhook(TypedDict):
    """
    Where the end of a job is told. Deliveries follow the conventions of Standard Webhooks;
    `docs/webhooks.md` says how to verify one.
    """

    secret: NotRequired[str | None]
    """
    What deliveries are signed with: `whsec_` and 24 to 64 bytes in base64. If it is left out the
    service makes one, which the answer that made the job shows; no other answer does.
    """
    url: str
    """
    What is posted to: `http` or `https`, on an address that is public or that the service
    allows. Whoever may read the job reads it too.
    """


class Baseline(TypedDict):
    """
    One device alone.
    """

    device_kind: str
    """
    Its device kind.
    """
    source: BaselineSource
    """
    Where it is from.
    """
    tokens_per_second: float
    """
    Tokens per second.
    """


class DatasetOptions(TypedDict):
    """
    The object form, of which serde and utoipa derive the parts.
    """

    documents: NotRequired[list[Any] | None]
    """
    The documents themselves, as strings or as records, 1 MB at most. The order of a record's
    keys is not kept, which matters only to a chat template that writes JSON.
    """
    field: NotRequired[str | None]
    """
    The field of a record that holds the text (`jsonl`, `parquet`: the default is `text`) or
    the messages (`chat`: the default is `messages`).
    """
    format: NotRequired[DatasetFormat | None]
    group_by: NotRequired[str | None]
    """
    A field of the records: documents with the same value form a group, and the result has the
    numbers of each group beside the whole. At most 1,000 groups.
    """
    limit_documents: NotRequired[int | None]
    """
    Take this many documents at most, from the start.
    """
    limit_tokens: NotRequired[int | None]
    """
    Take whole documents while their tokens stay within this many, and always
    the first that has some.
    """
    name: NotRequired[str | None]
    """
    Name in the results; the default is the path, the upload's name, or `documents`. Unique
    within a job.
    """
    path: NotRequired[str | None]
    """
    Path below the data root of a file, of a directory (all files below it whose names end in
    `.txt`, `.jsonl`, `.ndjson` or `.parquet`, also with `.gz` or `.zst` behind, by name), or a
    glob such as `web/*.jsonl.gz`. Where the service uses a hub, also a file of it,
    `hf://datasets/org/name@revision/file.jsonl`. One of `path`, `upload` and `documents` is
    required.
    """
    prompt_field: NotRequired[str | None]
    """
    `pairs` only: the field that holds the prompt; the default is `prompt`.
    """
    response_field: NotRequired[str | None]
    """
    `pairs` only: the field that holds the response; the default is `response`.
    """
    sample: NotRequired[Sample | None]
    score: NotRequired[Score | None]
    upload: NotRequired[str | None]
    """
    Name of a dataset that was uploaded by `PUT /datasets/{name}`.
    """
    upload_digest: NotRequired[str | None]
    """
    Only in answers: `sha256:` of the upload when the job was posted.
    """


DatasetRef: TypeAlias = str | DatasetOptions


class GroupComparison(PairedDifference):
    """
    The paired difference of a group of documents.
    """

    name: str
    """
    The value that its documents have in the field.
    """


class JobError(TypedDict):
    """
    Why a job failed.
    """

    code: ErrorCode
    """
    The code, for programs.
    """
    detail: str
    """
    What happened and what to do about it.
    """
    field: NotRequired[str | None]
    """
    The field of the request at fault, if one is.
    """
    shard: NotRequired[ShardLocation | None]


JobSelector: TypeAlias = str | TaggedJob
"""
The id of a job, or an object with a tag that it has.
"""


class Method(TypedDict):
    """
    The method with every default filled in. Options that the convention does not have are left
    out.
    """

    bos: NotRequired[Bos | None]
    convention: Convention
    """
    How text becomes windows and counted spans.
    """
    join: NotRequired[str | None]
    """
    The text between two documents.
    """
    stride: NotRequired[int | None]
    """
    Tokens from the start of one window to that of the next.
    """
    tail: NotRequired[Tail | None]
    window: int
    """
    Tokens in a window.
    """


class MethodRequest(TypedDict):
    """
    The method of a request; what is left out takes its default.
    """

    bos: NotRequired[Bos | None]
    convention: NotRequired[Convention]
    """
    How text becomes windows and counted spans.
    """
    join: NotRequired[str | None]
    """
    All but `rolling`: the text between two documents; the default is two line feeds.
    """
    stride: NotRequired[int | None]
    """
    `strided` only: tokens from the start of one window to that of the next, fewer than
    `window`; the default is the smaller of 512 and half a window.
    """
    tail: NotRequired[Tail | None]
    window: NotRequired[int | None]
    """
    Tokens in a window; the default is the smaller of 2048 and the model's positions, under
    `llamacpp` of 512. Under `llamacpp` at least 4, under `blocks` and `strided` at least 2.
    """


OneOrManyMethod: TypeAlias = Method | list[Method]
"""
One object or a list of them; it travels in the form it came in.
"""


OneOrManyMethodRequest: TypeAlias = MethodRequest | list[MethodRequest]
"""
One object or a list of them; it travels in the form it came in.
"""


class Performance(TypedDict):
    """
    How fast a job went. Rates of tokens are weighted by operations: a token of a short window
    costs less than one of a long window, so a rate of operations is measured and divided by the
    operations that a token of this job costs on average.
    """

    baseline: NotRequired[Baseline | None]
    communication_share: NotRequired[float | None]
    """
    Seconds that the ledger kept devices from computing (`claim_seconds`), over these and the
    seconds that they computed.
    """
    computed_tokens: int
    """
    Tokens scored by any attempt, late and repeated ones included, as far as reported.
    """
    counted_tokens: int
    """
    Tokens counted, each once.
    """
    devices: NotRequired[list[DevicePerformance]]
    """
    What each device did, ordered by worker and device.
    """
    distributed_tokens_per_second: NotRequired[float | None]
    """
    Tokens per second of all devices together, from the moment that the first of them computes
    until the last commit, the measuring of the baseline left out. Audited tokens are in it as
    often as they were computed.
    """
    efficiency: NotRequired[float | None]
    """
    The distributed rate over the sum of what its devices do alone; null where that is not
    known for each of their kinds.
    """
    seconds: float
    """
    Wall seconds from the first claim of a shard to the last commit.
    """
    speedup: NotRequired[float | None]
    """
    `distributed_tokens_per_second` over that of the baseline.
    """
    tokens_per_second: NotRequired[float | None]
    """
    Counted tokens per second of wall time.
    """
    worker_seconds: NotRequired[Spread | None]


class Precision(TypedDict):
    """
    What an adaptive job was computed in.
    """

    effect: NotRequired[PrecisionEffect | None]
    shares: list[PrecisionShare]
    """
    By device kind and dtype, the most tokens first. Numbers of earlier jobs are not in it.
    """


class StateEvent(TypedDict):
    """
    The job is in another state.
    """

    at: str
    """
    When it was so.
    """
    error: NotRequired[JobError | None]
    state: JobState
    """
    The state from then on.
    """


class Waiting(TypedDict):
    """
    What a job waits for that will not come by itself.
    """

    code: WaitingCode
    """
    Why, for programs.
    """
    detail: str
    """
    Why, and what to do.
    """


class ComparisonRequest(TypedDict):
    """
    The body of `POST /comparisons`.
    """

    baseline: JobSelector
    """
    What is compared with: a job, or `{"tag": "key:value"}` for the newest succeeded job with
    this tag that is older than the candidate.
    """
    candidate: str
    """
    The job that is judged.
    """
    datasets: NotRequired[list[str]]
    """
    Names of the candidate's datasets to compare; all of them if left out.
    """
    documents: NotRequired[int]
    """
    How many documents `worst` and `best` name at most.
    """
    max_increase: NotRequired[float | None]
    """
    The largest increase of the mean NLL that passes, in nats per token of the baseline; 0.01
    is 1 % of perplexity. With it the comparison has a verdict.
    """


class DatasetComparison(PairedDifference):
    """
    The paired difference of one dataset under one method, candidate minus baseline.
    """

    baseline_name: NotRequired[str | None]
    """
    Its name in the baseline, if that is another one.
    """
    best: list[DocumentChange]
    """
    The documents whose mean NLL fell most, the most first.
    """
    groups: NotRequired[list[GroupComparison]]
    """
    The numbers of each group of the candidate, ordered by name.
    """
    max_increase: NotRequired[float | None]
    """
    The largest increase that passes, in nats per `unit`.
    """
    method: Method
    """
    The method.
    """
    name: str
    """
    Name of the dataset.
    """
    reason: NotRequired[str | None]
    """
    Why, in a sentence.
    """
    unit: Unit
    """
    What the means are over.
    """
    verdict: NotRequired[Verdict | None]
    worst: list[DocumentChange]
    """
    The documents whose mean NLL rose most, the most first.
    """


class DatasetProgress(TypedDict):
    """
    How far one dataset is under one method.
    """

    method: Method
    """
    The method.
    """
    name: str
    """
    Name of the dataset.
    """
    planned_tokens: NotRequired[int | None]
    """
    Tokens the plan counts; null until the job is planned.
    """
    scored_tokens: int
    """
    Tokens counted so far.
    """
    shards: int
    """
    Shards of the plan.
    """
    shards_done: int
    """
    Shards committed.
    """


class DatasetResult(TypedDict):
    """
    The numbers of one dataset under one method.
    """

    bits_per_byte: NotRequired[float | None]
    """
    nll / bytes / ln 2; null where the convention does not score every token.
    """
    byte_perplexity: NotRequired[float | None]
    """
    exp(nll / bytes); null where the convention does not score every token.
    """
    bytes: NotRequired[int | None]
    """
    Bytes of the taken documents in UTF-8.
    """
    confidence_95: NotRequired[float | None]
    """
    Half-width of the 95 % confidence interval of the mean NLL, t(G-1); null with
    `standard_error`.
    """
    digest: NotRequired[str | None]
    """
    `sha256:` of the dataset's bytes; null until the job is planned.
    """
    documents: NotRequired[int | None]
    """
    Documents taken.
    """
    groups: NotRequired[list[GroupResult]]
    """
    The numbers of each group, if `group_by` was asked for, ordered by name.
    """
    macro_perplexity: NotRequired[float | None]
    """
    exp of the mean over documents of their mean NLL.
    """
    method: Method
    """
    The method.
    """
    name: str
    """
    Name of the dataset.
    """
    nll: NotRequired[float | None]
    """
    Summed negative log-likelihood in nats.
    """
    nll_exact: NotRequired[int | None]
    """
    The same sum as an exact integer in units of 2^-32 nat.
    """
    overflow: NotRequired[bool]
    """
    An exponential overflowed; the mean NLL is still exact.
    """
    perplexity: NotRequired[float | None]
    """
    exp(nll / scored_tokens); null if it overflows, see `overflow`.
    """
    reused_from: NotRequired[str | None]
    """
    The job that scored it, if its numbers were taken from an earlier one.
    """
    scored_tokens: int
    """
    Tokens counted.
    """
    seconds: float
    """
    Device seconds of the counted shards.
    """
    standard_error: NotRequired[float | None]
    """
    Standard error of the mean NLL in nats per token, clustered by document (one document:
    by 50 equal spans); null under 5 clusters.
    """
    tokens: NotRequired[int | None]
    """
    Tokens of the taken documents.
    """
    tokens_per_second: NotRequired[float | None]
    """
    Counted tokens per device second.
    """
    unscored_documents: NotRequired[int | None]
    """
    Documents without a scored token.
    """
    word_perplexity: NotRequired[float | None]
    """
    exp(nll / words); null where the convention does not score every token.
    """
    words: NotRequired[int | None]
    """
    Words of the scored documents, as Python's `len(re.split(r"\\s+", text))`.
    """


class GateRequest(TypedDict):
    """
    What a job is held against once it has succeeded: `gate` of `POST /jobs`.
    """

    baseline: JobSelector
    """
    What it is compared with: a job, or `{"tag": "key:value"}` for the newest succeeded job with
    this tag when the job is posted.
    """
    datasets: NotRequired[list[str]]
    """
    Names of the datasets that are judged; all of them if left out.
    """
    max_increase: float
    """
    The largest increase of the mean NLL that passes, in nats per token of the baseline; 0.01
    is 1 % of perplexity.
    """


class JobOptions(TypedDict):
    """
    Options of a job.
    """

    audit: NotRequired[float]
    """
    The share of the shards, 0 to 1 and rounded up, that another worker computes again. Where
    two workers disagree a third one decides; the worker that is found wrong computes nothing
    more, and its shards of the job are computed again.
    """
    baseline: NotRequired[BaselineRequest]
    """
    Whether one device computes a sample of the job alone first, which the speed-up is
    measured against.
    """
    deadlines: NotRequired[Deadlines | None]
    dtype: NotRequired[DtypeRequest]
    """
    The dtype of the computation.
    """
    gate: NotRequired[GateRequest | None]
    name: NotRequired[str | None]
    """
    A name for people.
    """
    numerics: NotRequired[Numerics]
    """
    Whether a device that is slow in this dtype may compute in float32.
    """
    priority: NotRequired[int]
    """
    Jobs of a higher priority are computed first, -100 to 100; among equals the older job.
    """
    reuse: NotRequired[bool]
    """
    Take numbers from an earlier job where it scored the same: equal digests of weights,
    tokenizer and data, method, dtype, device kind and `numerics_version`. The result says so
    in `reused_from`.
    """
    tags: NotRequired[dict[str, str]]
    """
    Free labels of the caller.
    """
    token_output: NotRequired[bool]
    """
    Keep the NLL of every counted token, for `GET /jobs/{id}/tokens` and the archive. Such a
    job reuses no earlier result.
    """
    webhook: NotRequired[Webhook | None]


class JobRequest(TypedDict):
    """
    The body of `POST /jobs`.
    """

    audit: NotRequired[float]
    """
    The share of the shards, 0 to 1 and rounded up, that another worker computes again. Where
    two workers disagree a third one decides; the worker that is found wrong computes nothing
    more, and its shards of the job are computed again.
    """
    baseline: NotRequired[BaselineRequest]
    """
    Whether one device computes a sample of the job alone first, which the speed-up is
    measured against.
    """
    datasets: list[DatasetRef]
    """
    The datasets to score, at least one.
    """
    deadlines: NotRequired[Deadlines | None]
    dtype: NotRequired[DtypeRequest]
    """
    The dtype of the computation.
    """
    gate: NotRequired[GateRequest | None]
    method: NotRequired[OneOrManyMethodRequest]
    """
    How text becomes numbers. With a list, each dataset is scored by each method, and each is
    a row of the result.
    """
    model: ModelRef
    """
    Path of the checkpoint below the model root, a directory as transformers writes it or a
    `.gguf` file; or an object with this `path` and the path of a LoRA `adapter`. Where the
    service uses a hub, each may be a reference to it, `hf://org/name@revision`.
    """
    name: NotRequired[str | None]
    """
    A name for people.
    """
    numerics: NotRequired[Numerics]
    """
    Whether a device that is slow in this dtype may compute in float32.
    """
    priority: NotRequired[int]
    """
    Jobs of a higher priority are computed first, -100 to 100; among equals the older job.
    """
    reuse: NotRequired[bool]
    """
    Take numbers from an earlier job where it scored the same: equal digests of weights,
    tokenizer and data, method, dtype, device kind and `numerics_version`. The result says so
    in `reused_from`.
    """
    tags: NotRequired[dict[str, str]]
    """
    Free labels of the caller.
    """
    token_output: NotRequired[bool]
    """
    Keep the NLL of every counted token, for `GET /jobs/{id}/tokens` and the archive. Such a
    job reuses no earlier result.
    """
    webhook: NotRequired[Webhook | None]


class JobResult(TypedDict):
    """
    The answer of `GET /jobs/{id}/results`.
    """

    audited: NotRequired[float]
    """
    The share of the counted tokens that another worker, or where there was none another device,
    computed again and agreed on. Less than was asked for where neither was there.
    """
    complete: bool
    """
    Whether every token of the plan is counted. Numbers of datasets that have not ended are
    null until then.
    """
    datasets: list[DatasetResult]
    """
    One entry per dataset and method, in the order of the request: all methods of the first
    dataset, then of the second.
    """
    device_kinds: list[str]
    """
    The device kinds that computed counted tokens. Bits are promised within one kind, if the
    numerics are uniform.
    """
    dtype: Dtype
    """
    The dtype of the computation; of an adaptive job see `precision`.
    """
    job_id: str
    """
    The job.
    """
    method: OneOrManyMethod
    """
    The method or methods.
    """
    model: NotRequired[ModelFacts | None]
    numerics_version: int
    """
    Changes whenever a change of the program moves a bit of a result.
    """
    performance: Performance
    """
    How fast it went.
    """
    precision: NotRequired[Precision | None]
    split_shards: NotRequired[int]
    """
    Shards whose micro-batches were split to fit in memory. Bits are promised for equal
    splits.
    """
    tokenizer: NotRequired[TokenizerFacts | None]
    version: str
    """
    The version of Assay that planned the job.
    """
    warnings: list[str]
    """
    What a reader of the numbers should know.
    """


class Progress(TypedDict):
    """
    How far a job is.
    """

    datasets: list[DatasetProgress]
    """
    The same by dataset and method, in the order of the request.
    """
    download: NotRequired[Download | None]
    eta_seconds: NotRequired[float | None]
    """
    Seconds to the end at that rate.
    """
    planned_tokens: NotRequired[int | None]
    """
    Tokens the plan counts; null until the job is planned.
    """
    scored_tokens: int
    """
    Tokens counted so far.
    """
    tokens_per_second: NotRequired[float | None]
    """
    Counted tokens per second of wall time since the first shard was claimed.
    """


class Comparison(TypedDict):
    """
    The answer of `POST /comparisons`.
    """

    baseline: str
    """
    The job that was compared with.
    """
    candidate: str
    """
    The job that is judged.
    """
    datasets: list[DatasetComparison]
    """
    One entry per dataset and method of the candidate, in its order.
    """
    verdict: NotRequired[Verdict | None]
    warnings: list[str]
    """
    What a reader of the numbers should know.
    """


class DatasetEvent(DatasetResult):
    """
    Every token of a dataset under a method is counted.
    """

    at: str
    """
    When it was so.
    """


class GateResult(TypedDict):
    """
    The answer of `GET /jobs/{id}/gate`.
    """

    comparison: NotRequired[Comparison | None]
    gate: Gate
    """
    What was asked for.
    """
    job_id: str
    """
    The job that is judged.
    """
    reason: str
    """
    Why, in a sentence.
    """
    verdict: NotRequired[Verdict | None]


class Job(TypedDict):
    """
    A job as `GET /jobs/{id}` answers it.
    """

    audit: NotRequired[float]
    """
    The share of the shards that is computed twice.
    """
    baseline: NotRequired[BaselineRequest]
    """
    Whether one device computes a sample alone first.
    """
    created_at: str
    """
    When it was accepted.
    """
    datasets: list[DatasetRef]
    """
    The datasets, with the options of the request.
    """
    deadlines: NotRequired[Deadlines | None]
    dtype: Dtype
    """
    The dtype of the computation, `auto` resolved.
    """
    error: NotRequired[JobError | None]
    finished_at: NotRequired[str | None]
    """
    When it ended.
    """
    gate: NotRequired[Gate | None]
    id: str
    """
    The job's id.
    """
    method: OneOrManyMethod
    """
    The method or methods, defaults filled in.
    """
    model: ModelRef
    """
    The checkpoint, in the form of the request. A reference to a hub has the commit that its
    revision was when the job was posted.
    """
    name: NotRequired[str | None]
    """
    The caller's name for it.
    """
    numerics: NotRequired[Numerics]
    """
    Whether a device that is slow in this dtype may compute in float32.
    """
    priority: NotRequired[int]
    """
    Jobs of a higher priority are computed first.
    """
    progress: Progress
    """
    How far it is.
    """
    started_at: NotRequired[str | None]
    """
    When a worker first took it up.
    """
    state: JobState
    """
    Where it stands.
    """
    tags: dict[str, str]
    """
    Free labels of the caller.
    """
    token_output: NotRequired[bool]
    """
    Whether the NLL of every counted token is kept.
    """
    waiting: NotRequired[Waiting | None]
    webhook: NotRequired[Webhook | None]


JobEvent: TypeAlias = StateEvent | DatasetEvent | Progress
"""
What happened to a job. It travels as the `data` of a server-sent event whose `event` is the
name in lower case.
"""
