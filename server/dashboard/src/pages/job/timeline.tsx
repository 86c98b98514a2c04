// Attempts at shards over time, one lane for each device. Kinds and outcomes differ in form: filled,
// hatched, outlined, crossed; colour only helps.
import { useMemo } from 'preact/hooks';
import { api, ok } from '../../api/client';
import type { AttemptRow, Job, ShardRow } from '../../api/types';
import { clock, duration, integer, things } from '../../lib/format';
import { useLoad } from '../../lib/load';
import { Empty, Table, Trouble } from '../../ui/parts';

const EVERY = 4_000;
/** So many shards are drawn; the archive has all. */
const MOST = 1_000;

interface Attempt extends AttemptRow {
  shard: ShardRow;
  /** Which attempt at its shard this is, from 1. */
  nth: number;
}

interface Lane {
  name: string;
  attempts: Attempt[];
}

export function Timeline({ job, open, turn }: { job: Job; open: boolean; turn: string }) {
  const shards = useLoad(
    `${turn.split(' ')[0]} ${open}`,
    () => ok(api.GET('/jobs/{id}/shards', { params: { path: { id: job.id }, query: { limit: MOST } } })),
    open ? EVERY : null,
  );
  const lanes = useMemo(() => lanesOf(shards.data?.items ?? []), [shards.data]);
  if (shards.error) return <Trouble error={shards.error} what="Listing shards" />;
  if (lanes.length === 0) return null;
  const all = lanes.flatMap((lane) => lane.attempts);
  const now = Date.now();
  const from = Math.min(...all.map((a) => Date.parse(a.started_at)));
  const to = Math.max(...all.map((a) => (a.finished_at ? Date.parse(a.finished_at) : now)), from + 1);
  const odd = all.filter((a) => a.outcome && a.outcome !== 'committed').length;
  const text =
    `${things(all.length, 'attempt')} at shards on ${things(lanes.length, 'device')} ` +
    `in ${duration((to - from) / 1000)}; ${odd === 0 ? 'all were counted or still run' : `${integer(odd)} ended otherwise`}.`;
  return (
    <section aria-labelledby="timeline">
      <h2 id="timeline">Shards over time</h2>
      <p>{text}</p>
      <ul class="legend" aria-label="Forms of the bars">
        <li>
          <i class="attempt kind-primary" /> computed
        </li>
        <li>
          <i class="attempt kind-primary retry" /> tried again
        </li>
        <li>
          <i class="attempt kind-copy" /> copy of a slow one
        </li>
        <li>
          <i class="attempt kind-audit" /> audit
        </li>
        <li>
          <i class="attempt kind-primary lost" /> not counted
        </li>
      </ul>
      <div class="timeline" role="img" aria-label={text}>
        {lanes.map((lane) => (
          <div key={lane.name} class="lane">
            <span class="lane-name">{lane.name}</span>
            <div class="track">
              {lane.attempts.map((a) => (
                <Bar key={a.fence} attempt={a} from={from} to={to} now={now} />
              ))}
            </div>
          </div>
        ))}
        <div class="lane scale">
          <span />
          <div class="row between">
            <span>0 s</span>
            <span>{duration((to - from) / 1000)}</span>
          </div>
        </div>
      </div>
      {shards.data?.next && (
        <p class="faint">The first {integer(MOST)} shards are drawn; the archive has all.</p>
      )}
      <details>
        <summary>The attempts as a table</summary>
        <Attempts of={all} />
      </details>
    </section>
  );
}

function lanesOf(shards: ShardRow[]): Lane[] {
  const lanes = new Map<string, Lane>();
  for (const shard of shards) {
    for (const [index, row] of shard.attempts.entries()) {
      const name = row.device ? `${row.worker} ${row.device}` : row.worker;
      const lane = lanes.get(name) ?? { name, attempts: [] };
      lanes.set(name, lane);
      lane.attempts.push({ ...row, shard, nth: index + 1 });
    }
  }
  return [...lanes.values()].sort((a, b) => a.name.localeCompare(b.name));
}

/** A primary attempt after another one is there because that one came to nothing. */
function isRetry(a: Attempt): boolean {
  return a.kind === 'primary' && a.nth > 1;
}

function words(a: Attempt): string {
  const outcome = a.outcome ?? 'running';
  return `shard ${a.shard.index} of ${a.shard.dataset}: ${isRetry(a) ? 'tried again' : a.kind}, ${outcome}${a.error ? `, ${a.error}` : ''}`;
}

function Bar({ attempt: a, from, to, now }: { attempt: Attempt; from: number; to: number; now: number }) {
  const start = Date.parse(a.started_at);
  const end = a.finished_at ? Date.parse(a.finished_at) : now;
  const isLost = Boolean(a.outcome && a.outcome !== 'committed');
  const classes = [
    'attempt',
    `kind-${a.kind}`,
    isRetry(a) && 'retry',
    isLost && 'lost',
    !a.outcome && 'live',
  ];
  return (
    <i
      class={classes.filter(Boolean).join(' ')}
      title={words(a)}
      style={{
        left: `${(100 * (start - from)) / (to - from)}%`,
        width: `${(100 * (end - start)) / (to - from)}%`,
      }}
    />
  );
}

function Attempts({ of }: { of: Attempt[] }) {
  if (of.length === 0) return <Empty>No attempt yet.</Empty>;
  return (
    <Table label="Attempts at shards">
      <thead>
        <tr>
          <th scope="col" class="number">
            Shard
          </th>
          <th scope="col">Dataset</th>
          <th scope="col">Kind</th>
          <th scope="col">Outcome</th>
          <th scope="col">Worker</th>
          <th scope="col">Device</th>
          <th scope="col">Started</th>
          <th scope="col" class="number">
            Took
          </th>
          <th scope="col" class="number">
            Tokens
          </th>
          <th scope="col">Audit</th>
          <th scope="col">Error</th>
        </tr>
      </thead>
      <tbody>
        {of.map((a) => (
          <tr key={a.fence}>
            <th scope="row" class="number">
              {a.shard.index}
            </th>
            <td>{a.shard.dataset}</td>
            <td>{isRetry(a) ? 'tried again' : a.kind}</td>
            <td>
              {a.outcome ?? 'running'}
              {a.late && ', late'}
            </td>
            <td>{a.worker}</td>
            <td>{a.device ?? ''}</td>
            <td>{clock(a.started_at)}</td>
            <td class="number">
              {a.finished_at ? duration((Date.parse(a.finished_at) - Date.parse(a.started_at)) / 1000) : ''}
            </td>
            <td class="number">{integer(a.shard.scored_tokens)}</td>
            <td>{a.shard.audit ?? ''}</td>
            <td>
              {a.error_code && `${a.error_code} `}
              {a.error ?? ''}
            </td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}
