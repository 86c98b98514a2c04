// Who computes: workers, their devices, and what is wrong with them.
import { api, ok } from '../api/client';
import type { WorkerRow, WorkerState } from '../api/types';
import { ago, clock, integer, things } from '../lib/format';
import { useLoad } from '../lib/load';
import { Empty, Loading, Trouble } from '../ui/parts';

const EVERY = 4_000;
const SIGNS: Record<WorkerState, string> = { live: '●', stopped: '○', lost: '✕', out_of_service: '⊘' };

export function Workers() {
  const workers = useLoad(
    'workers',
    () => ok(api.GET('/workers', { params: { query: { limit: 1000 } } })),
    EVERY,
  );
  const rows = workers.data?.items ?? [];
  const live = rows.filter((row) => row.state === 'live');
  const others = rows.filter((row) => row.state !== 'live');
  const devices = live.reduce((sum, row) => sum + row.devices.length, 0);
  return (
    <>
      <h1>Workers</h1>
      <Trouble error={workers.error} what="Listing workers" />
      {workers.loading && <Loading what="workers" />}
      {workers.data && live.length === 0 && (
        <Empty>No worker is there: jobs wait. Start `assay-worker` with the database of this server.</Empty>
      )}
      {live.length > 0 && (
        <section aria-labelledby="live">
          <h2 id="live">Computing</h2>
          <p class="figures">
            <span>
              <b>{integer(live.length)}</b> live
            </span>
            <span>
              <b>{things(devices, 'device')}</b>
            </span>
            <span>
              <b>
                {things(
                  live.reduce((sum, row) => sum + row.running, 0),
                  'attempt',
                )}
              </b>{' '}
              running
            </span>
          </p>
          <ul class="cards">
            {live.map((row) => (
              <Worker key={row.id} of={row} />
            ))}
          </ul>
        </section>
      )}
      {others.length > 0 && (
        <section aria-labelledby="others">
          <h2 id="others">Not computing</h2>
          <ul class="cards">
            {others.map((row) => (
              <Worker key={row.id} of={row} />
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

function Worker({ of }: { of: WorkerRow }) {
  const now = Date.now();
  return (
    <li class="card">
      <div class="row between">
        <h3>{of.name}</h3>
        <span class={`badge worker-${of.state}`}>
          <span aria-hidden="true">{SIGNS[of.state]}</span> {of.state.replaceAll('_', ' ')}
        </span>
      </div>
      <dl class="facts">
        <div>
          <dt>Devices</dt>
          <dd>
            {of.devices.map((device) => (
              <div key={device.name} class="device">
                <b>{device.name}</b> <span class="faint break">{device.kind}</span>
              </div>
            ))}
          </dd>
        </div>
        <div>
          <dt>Holds</dt>
          <dd>{things(of.running, 'attempt')}</dd>
        </div>
        <div>
          <dt>Last heard of</dt>
          <dd>
            <time dateTime={of.last_seen_at}>{clock(of.last_seen_at)}</time>{' '}
            <span class="faint">({ago(of.last_seen_at, now)})</span>
          </dd>
        </div>
        <div>
          <dt>Since</dt>
          <dd>
            {clock(of.started_at)}, assay {of.version}
          </dd>
        </div>
        {Boolean(of.late_commits) && (
          <div>
            <dt>Late results</dt>
            <dd>
              {things(of.late_commits ?? 0, 'result')} came after their attempt had ended, and were dropped
            </dd>
          </div>
        )}
      </dl>
      {of.out_of_service && (
        <p class="notice bad">
          <strong>Out of service until it is started anew.</strong> {of.out_of_service}
        </p>
      )}
      {of.last_error && (
        <p class="notice warn">
          <strong>{of.last_error.code}</strong> {of.last_error.detail}{' '}
          <span class="faint">{clock(of.last_error.at)}</span>
        </p>
      )}
    </li>
  );
}
