// The documents that the model finds hardest.
import { useSignal } from '@preact/signals';
import { api, ok } from '../../api/client';
import type { Job } from '../../api/types';
import { dataset, fixed, integer, method, methods } from '../../lib/format';
import { useLoad } from '../../lib/load';
import { Empty, Table, Trouble } from '../../ui/parts';

const MOST = 20;

export function Documents({ job }: { job: Job }) {
  const names = job.datasets.map(dataset);
  const ways = methods(job.method);
  const name = useSignal(names[0] ?? '');
  const way = useSignal(0);
  const worst = useLoad(`${job.id} ${job.state} ${name.value} ${way.value}`, () =>
    ok(
      api.GET('/jobs/{id}/documents', {
        params: {
          path: { id: job.id },
          query: { dataset: name.value, method: way.value, order: 'worst', limit: MOST },
        },
      }),
    ),
  );
  return (
    <section aria-labelledby="worst">
      <h2 id="worst">Worst documents</h2>
      <div class="filters">
        {names.length > 1 && (
          <label>
            Dataset{' '}
            <select
              value={name}
              onChange={(event) => {
                name.value = event.currentTarget.value;
              }}
            >
              {names.map((each) => (
                <option key={each} value={each}>
                  {each}
                </option>
              ))}
            </select>
          </label>
        )}
        {ways.length > 1 && (
          <label>
            Method{' '}
            <select
              value={String(way.value)}
              onChange={(event) => {
                way.value = Number(event.currentTarget.value);
              }}
            >
              {ways.map((each, index) => (
                <option key={method(each)} value={String(index)}>
                  {method(each)}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      <Trouble error={worst.error} what="Listing documents" />
      {worst.data?.items.length === 0 && <Empty>No document of this dataset has a counted token.</Empty>}
      {worst.data && worst.data.items.length > 0 && (
        <Table label="Documents by mean NLL">
          <thead>
            <tr>
              <th scope="col" class="number">
                Document
              </th>
              <th scope="col" class="number">
                NLL
              </th>
              <th scope="col" class="number">
                Counted tokens
              </th>
              <th scope="col" class="number">
                Bytes
              </th>
              <th scope="col" class="number">
                Words
              </th>
              {worst.data.items.some((row) => row.group) && <th scope="col">Group</th>}
            </tr>
          </thead>
          <tbody>
            {worst.data.items.map((row) => (
              <tr key={row.index}>
                <th scope="row" class="number">
                  {integer(row.index)}
                </th>
                <td class="number">{fixed(row.nll, 4)}</td>
                <td class="number">{integer(row.scored_tokens)}</td>
                <td class="number">{integer(row.bytes)}</td>
                <td class="number">{integer(row.words)}</td>
                {row.group && <td>{row.group}</td>}
              </tr>
            ))}
          </tbody>
        </Table>
      )}
      <p class="faint">
        In the order of the mean NLL per token, the highest first. Documents are numbered from 0.
      </p>
    </section>
  );
}
