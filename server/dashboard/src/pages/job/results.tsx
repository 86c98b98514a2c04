// The numbers of a job, and what they were made from.
import { api, ok } from '../../api/client';
import type { DatasetResult, Job, JobResult } from '../../api/types';
import { digest, duration, fixed, integer, method, rate } from '../../lib/format';
import { type Loaded, useLoad } from '../../lib/load';
import { href } from '../../router';
import { Copy, Empty, Table, Trouble } from '../../ui/parts';

export function useResults(job: Job, turn: string): Loaded<JobResult> {
  return useLoad(turn, () => ok(api.GET('/jobs/{id}/results', { params: { path: { id: job.id } } })));
}

export function Results({ job, turn }: { job: Job; turn: string }) {
  const results = useResults(job, turn);
  const data = results.data;
  const rows = data?.datasets.filter((row) => row.perplexity != null || row.overflow) ?? [];
  return (
    <section aria-labelledby="results">
      <h2 id="results">Results</h2>
      <Trouble error={results.error} what="Reading the results" />
      {data && rows.length === 0 && (
        <Empty>
          {data.complete ? 'No token was counted.' : 'Numbers stand here as soon as a dataset has ended.'}
        </Empty>
      )}
      {rows.length > 0 && <Numbers rows={rows} />}
      {data && !data.complete && rows.length > 0 && <p class="faint">The other datasets have not ended.</p>}
      {data?.warnings.map((warning) => (
        <p key={warning} class="notice warn">
          {warning}
        </p>
      ))}
    </section>
  );
}

function Numbers({ rows }: { rows: DatasetResult[] }) {
  return (
    <>
      <Table label="Results by dataset">
        <thead>
          <tr>
            <th scope="col">Dataset</th>
            <th scope="col" class="number">
              Perplexity
            </th>
            <th scope="col" class="number">
              Standard error
            </th>
            <th scope="col" class="number">
              ± 95 %
            </th>
            <th scope="col" class="number">
              Word perplexity
            </th>
            <th scope="col" class="number">
              Bits per byte
            </th>
            <th scope="col" class="number">
              Tokens
            </th>
            <th scope="col" class="number">
              Documents
            </th>
            <th scope="col" class="number">
              Tokens/s
            </th>
            <th scope="col">Method</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={`${row.name} ${method(row.method)}`} row={row} />
          ))}
        </tbody>
      </Table>
      <p class="faint">
        Errors are those of the mean negative log-likelihood, in nats per token. Tokens/s is the rate of one
        device.
      </p>
    </>
  );
}

function Row({ row }: { row: DatasetResult }) {
  return (
    <>
      <tr>
        <th scope="row">{row.name}</th>
        <td
          class="number strong"
          data-perplexity={row.perplexity ?? undefined}
          title={String(row.perplexity ?? '')}
        >
          {row.overflow ? 'overflow' : fixed(row.perplexity, 4)}
        </td>
        <td class="number">{fixed(row.standard_error, 4)}</td>
        <td class="number">{fixed(row.confidence_95, 4)}</td>
        <td class="number">{fixed(row.word_perplexity, 4)}</td>
        <td class="number">{fixed(row.bits_per_byte, 4)}</td>
        <td class="number">{integer(row.scored_tokens)}</td>
        <td class="number">{integer(row.documents)}</td>
        <td class="number">
          {row.reused_from ? (
            <a href={href(['jobs', row.reused_from])}>reused</a>
          ) : (
            rate(row.tokens_per_second)
          )}
        </td>
        <td>{method(row.method)}</td>
      </tr>
      {row.groups?.map((group) => (
        <tr key={group.name} class="group">
          <td>{group.name}</td>
          <td class="number">{fixed(group.perplexity, 4)}</td>
          <td class="number">{fixed(group.standard_error, 4)}</td>
          <td class="number">{fixed(group.confidence_95, 4)}</td>
          <td />
          <td />
          <td class="number">{integer(group.scored_tokens)}</td>
          <td class="number">{integer(group.documents)}</td>
          <td />
          <td class="faint">group</td>
        </tr>
      ))}
    </>
  );
}

/** What makes the numbers the same elsewhere. */
export function Facts({ job, turn }: { job: Job; turn: string }) {
  const { data } = useResults(job, turn);
  if (data === null) return null;
  const digests: [string, string | null | undefined][] = [
    ['Weights', data.model?.digest],
    ['Tokenizer', data.tokenizer?.digest],
    ['Chat template', data.tokenizer?.chat_template],
    ...data.datasets.map((row): [string, string | null | undefined] => [row.name, row.digest]),
  ];
  return (
    <section aria-labelledby="provenance">
      <h2 id="provenance">Made from</h2>
      <dl class="facts">
        {data.model && (
          <div>
            <dt>Model</dt>
            <dd>
              {data.model.family}, {integer(data.model.parameters)} parameters
            </dd>
          </div>
        )}
        {[...new Map(digests)].map(
          ([name, value]) =>
            value && (
              <div key={name}>
                <dt>{name}</dt>
                <dd>
                  <code title={value}>{digest(value)}</code> <Copy text={value} label="Copy digest" />
                </dd>
              </div>
            ),
        )}
        {data.device_kinds.length > 0 && (
          <div>
            <dt>Device kinds</dt>
            <dd class="break">{data.device_kinds.join(', ')}</dd>
          </div>
        )}
        <div>
          <dt>Version</dt>
          <dd>
            assay {data.version}, numerics version {data.numerics_version}
          </dd>
        </div>
        {data.performance.seconds > 0 && (
          <div>
            <dt>Computed for</dt>
            <dd>{duration(data.performance.seconds)}</dd>
          </div>
        )}
      </dl>
    </section>
  );
}
