#!/usr/bin/env bash
# The long check, in three parts. Opens checkpoints whose files are damaged in every way there is: fails
# when one panics, ends the process or takes more memory than is stated, and keeps it in
# crates/checkpoint/tests/fuzz-seeds. Then calls every operation of a running service with what its
# own OpenAPI description says, with what it does not say, and in sequences (schemathesis): fails
# when the server answers with a server error, or otherwise than it describes, or when anything
# panics. Last, the Python client's example logs jobs to a tracking server of MLflow, and what it logged
# is compared.
# ASSAY_FUZZ_SECONDS sets how long each kind of file is damaged, ASSAY_FUZZ_SEED repeats an earlier
# run, EXAMPLES sets how many requests an operation gets at most.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

readonly venv=$build/schemathesis
readonly work=$build/check-long
readonly log=$work/assay.log
readonly assay=${CARGO_TARGET_DIR:-$root/target}/release/assay
readonly requirements=$root/scripts/schemathesis.txt
# What the examples of the description call their checkpoint: here it is a tiny one.
readonly model=SmolLM2-135M-Instruct.Q4_1.gguf

export ASSAY_FUZZ_SECONDS=${ASSAY_FUZZ_SECONDS:-600}
export ASSAY_FUZZ_SEED=${ASSAY_FUZZ_SEED:-$(date +%s)}
step "opening damaged checkpoints (seed: $ASSAY_FUZZ_SEED)" \
    cargo test --release --locked -p assay-checkpoint --test fuzz -- --nocapture

step 'installing schemathesis' make_venv "$requirements" "$venv"
exec 9>&-

mkdir -p "$work"
# What the service starts inherits the lock, so it also tells whether an earlier run still runs.
exec 8>"$work/.lock"
flock --nonblock 8 || die "another long check is still running (its log: $log)"
rm -rf "$work"/{state,models,data}
mkdir -p "$work"/{models,data}
cp -R tests/fixtures/chat "$work/models/$model"
cp tests/fixtures/chat/templates/llama3.jinja "$work/models/$model/chat_template.jinja"
# The datasets of the examples, short ones.
head --lines 40 demo/moby-dick.txt >"$work/data/moby-dick.txt"
printf '{"text": "one", "subject": "a"}\n{"text": "two words", "subject": "b"}\n' \
    >"$work/data/questions.jsonl"
printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' \
    >"$work/data/chats.jsonl"
: >"$log"

stop() {
    kill -TERM "$service" 2>/dev/null || true
    wait "$service" || true
}
say "starting the service (log: $log)"
"$assay" up --listen 127.0.0.1:0 --model-root "$work/models" --data-root "$work/data" \
    --state-dir "$work/state" --workers 1 --devices cpu:0 >>"$log" 2>&1 &
service=$!
trap stop EXIT
# Ends with the line looked for, or with the service.
url=$(tail --lines +1 --follow --pid "$service" "$log" | sed -n '/^listening on /{s///p;q}') || true
[ -n "$url" ] || {
    tail --lines 20 "$log" >&2
    die "the service did not start; its whole log is $log"
}

# post JOB: posts it, waits for its end and prints its id.
post() {
    printf '%s' "$1" | "$assay" submit --server "$url" --file - --wait --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["job_id"])'
}
# With keys, and so with the refusals of those that are made up.
ASSAY_API_KEY=$("$assay" keys create --server "$url" --name check --scope admin)
export ASSAY_API_KEY
say 'scoring a job to ask about'
job=$(post "{\"model\": \"$model\", \"token_output\": true, \"method\": [{\"window\": 64},
    {\"convention\": \"blocks\", \"window\": 8}], \"datasets\": [\"moby-dick.txt\",
    {\"path\": \"questions.jsonl\", \"group_by\": \"subject\"}]}")

# schemathesis.toml of the second run: ids and names that exist, so that what hangs on them is
# reached; random ones never do.
cat >"$work/known.toml" <<END
[parameters]
"path.id" = "$job"
"query.dataset" = "questions.jsonl"
"query.path" = "$model"
END
: >"$work/unknown.toml"

status=0
for known in unknown known; do
    say "calling every operation with ids that are $known"
    "$venv/bin/schemathesis" --config-file "$work/$known.toml" run "$url/openapi.json" \
        --header "Authorization: Bearer $ASSAY_API_KEY" --exclude-operation-id revoke_key \
        --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
        --max-examples "${EXAMPLES:-100}" --continue-on-failure --seed 1 --workers 2 \
        --request-timeout 60 --report-dir "$work/report" || status=1
done

"$assay" jobs --server "$url" --json >/dev/null || die "the service no longer answers; its log is $log"
post "{\"model\": \"$model\", \"reuse\": false, \"datasets\": [\"moby-dick.txt\"]}" >/dev/null ||
    die "the service no longer scores; its log is $log"
if grep --line-number 'panicked' "$log" >&2; then
    die "something panicked; the whole log is $log"
fi
[ "$status" = 0 ] || die "schemathesis found failures; the log of the service is $log"
say 'no server error, no panic, and every answer as described'

stop
trap - EXIT
scripts/test-client.sh mlflow
