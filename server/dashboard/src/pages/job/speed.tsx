// How fast a job went, beside one device alone.
import type { Job } from '../../api/types';
import { duration, fixed, integer, rate } from '../../lib/format';
import { Table } from '../../ui/parts';
import { useResults } from './results';

export function Speed({ job, turn }: { job: Job; turn: string }) {
  const performance = useResults(job, turn).data?.performance;
  if (!performance || performance.counted_tokens === 0) return null;
  const { baseline } = performance;
  return (
    <section aria-labelledby="speed">
      <h2 id="speed">Speed</h2>
      <p class="figures">
        <span>
          <b>{rate(performance.tokens_per_second)}</b> tokens/s of wall time
        </span>
        <span>
          <b>{performance.speedup == null ? '—' : `${fixed(performance.speedup, 2)}×`}</b>{' '}
          {baseline
            ? `one device alone (${rate(baseline.tokens_per_second)} tokens/s, ${baseline.source})`
            : 'speed-up, no baseline'}
        </span>
        <span>
          <b>{performance.efficiency == null ? '—' : `${fixed(100 * performance.efficiency, 1)} %`}</b>{' '}
          efficiency
        </span>
        <span>
          <b>
            {performance.communication_share == null
              ? '—'
              : `${fixed(100 * performance.communication_share, 1)} %`}
          </b>{' '}
          waiting for the ledger
        </span>
      </p>
      <Table label="What each device did">
        <thead>
          <tr>
            <th scope="col">Worker</th>
            <th scope="col">Device</th>
            <th scope="col" class="number">
              Shards
            </th>
            <th scope="col" class="number">
              Tokens
            </th>
            <th scope="col" class="number">
              Load
            </th>
            <th scope="col" class="number">
              Busy
            </th>
            <th scope="col" class="number">
              Claim
            </th>
            <th scope="col" class="number">
              Commit
            </th>
            <th scope="col" class="number">
              Idle
            </th>
          </tr>
        </thead>
        <tbody>
          {performance.devices?.map((row) => (
            <tr key={`${row.worker} ${row.device}`}>
              <th scope="row">{row.worker}</th>
              <td>{row.device}</td>
              <td class="number">{integer(row.shards)}</td>
              <td class="number">{integer(row.tokens)}</td>
              <td class="number">{duration(row.load_seconds)}</td>
              <td class="number">{duration(row.busy_seconds)}</td>
              <td class="number">{duration(row.claim_seconds)}</td>
              <td class="number">{duration(row.commit_seconds)}</td>
              <td class="number">{duration(row.idle_seconds)}</td>
            </tr>
          ))}
        </tbody>
      </Table>
    </section>
  );
}
