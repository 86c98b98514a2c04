// Two jobs side by side: the paired difference of what both have scored.
import { useSignal } from '@preact/signals';
import { api, ok } from '../../api/client';
import type { Comparison, DatasetComparison, DocumentChange } from '../../api/types';
import { fixed, integer, method, signed } from '../../lib/format';
import { useLoad } from '../../lib/load';
import { replaceQuery, route } from '../../router';
import { Empty, Loading, Table, Trouble, VerdictBadge } from '../../ui/parts';
import { JobPicker } from './picker';
import { Scatter } from './scatter';
import { Differences } from './table';

const DOCUMENTS = 10;

export function Compare() {
  const { query } = route.value;
  const candidate = query.get('candidate') ?? '';
  const baseline = query.get('baseline') ?? '';
  const limit = query.get('limit') ?? '';
  const typed = useSignal(limit);
  const change = (to: Record<string, string>) => replaceQuery({ candidate, baseline, limit, ...to });
  const most = limit === '' ? null : Number(limit);
  const compared = useLoad(candidate && baseline ? `${candidate} ${baseline} ${limit}` : null, () =>
    ok(
      api.POST('/comparisons', {
        body: { candidate, baseline, documents: DOCUMENTS, ...(most === null ? {} : { max_increase: most }) },
      }),
    ),
  );
  return (
    <>
      <h1>Compare two jobs</h1>
      <p class="lead">
        Both have scored the same text, so the difference is taken document by document. Its error is far
        smaller than that of two perplexities.
      </p>
      <div class="pair">
        <JobPicker
          label="Candidate"
          hint="the job that is judged"
          id={candidate}
          onPick={(id) => change({ candidate: id })}
        />
        <JobPicker
          label="Baseline"
          hint="what it is held against"
          id={baseline}
          onPick={(id) => change({ baseline: id })}
        />
      </div>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          change({ limit: typed.value.trim() });
        }}
      >
        <label>
          Largest increase that passes, nats per token{' '}
          <input
            type="number"
            step="any"
            min="0"
            placeholder="0.01"
            value={typed}
            onInput={(event) => {
              typed.value = event.currentTarget.value;
            }}
          />
        </label>
        <button type="submit">Judge</button>
        <span class="faint">0.01 is 1 % of perplexity</span>
      </form>
      {!(candidate && baseline) && <Empty>Choose two succeeded jobs.</Empty>}
      {compared.loading && <Loading what="the comparison" />}
      <Trouble error={compared.error} what="The comparison" />
      {compared.data && <Answer of={compared.data} />}
    </>
  );
}

function Answer({ of }: { of: Comparison }) {
  const chosen = useSignal(0);
  const row = of.datasets[Math.min(chosen.value, of.datasets.length - 1)];
  return (
    <>
      <section aria-labelledby="difference">
        <h2 id="difference">Difference, candidate less baseline</h2>
        {of.verdict && (
          <p class="verdict">
            Verdict: <VerdictBadge of={of.verdict} />
          </p>
        )}
        <Differences of={of} />
        {of.datasets.map(
          (each) =>
            each.reason && (
              <p key={`${each.name} ${method(each.method)}`}>
                {each.name}: {each.reason}
              </p>
            ),
        )}
        {of.warnings.map((warning) => (
          <p key={warning} class="notice warn">
            {warning}
          </p>
        ))}
      </section>
      {row && (
        <section aria-labelledby="by-document">
          <h2 id="by-document">By document</h2>
          {of.datasets.length > 1 && (
            <label>
              Dataset{' '}
              <select
                value={String(chosen.value)}
                onChange={(event) => {
                  chosen.value = Number(event.currentTarget.value);
                }}
              >
                {of.datasets.map((each, index) => (
                  <option key={`${each.name} ${method(each.method)}`} value={String(index)}>
                    {each.name}, {method(each.method)}
                  </option>
                ))}
              </select>
            </label>
          )}
          <Scatter of={of} row={row} />
          <div class="pair">
            <Changes title="Got worst" rows={row.worst} unit={row.unit} />
            <Changes title="Got best" rows={row.best} unit={row.unit} />
          </div>
          <p class="faint">
            Documents are numbered from 0. The service keeps their numbers and not their text: look it up in
            the dataset.
          </p>
        </section>
      )}
    </>
  );
}

function Changes({
  title,
  rows,
  unit,
}: {
  title: string;
  rows: DocumentChange[];
  unit: DatasetComparison['unit'];
}) {
  return (
    <div>
      <h3>{title}</h3>
      {rows.length === 0 ? (
        <Empty>No document.</Empty>
      ) : (
        <Table label={title}>
          <thead>
            <tr>
              <th scope="col" class="number">
                Document
              </th>
              <th scope="col" class="number">
                Difference
              </th>
              <th scope="col" class="number">
                Baseline
              </th>
              <th scope="col" class="number">
                Candidate
              </th>
              <th scope="col" class="number">
                {unit === 'byte' ? 'Bytes' : 'Tokens'}
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.index}>
                <th scope="row" class="number">
                  {integer(row.index)}
                </th>
                <td class="number strong">{signed(row.difference, 4)}</td>
                <td class="number">{fixed(row.baseline_mean_nll, 4)}</td>
                <td class="number">{fixed(row.candidate_mean_nll, 4)}</td>
                <td class="number">{integer(row.units)}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
    </div>
  );
}
