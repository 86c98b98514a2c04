// One job: where it stands, what it has come to, and how it went.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api, ok } from '../../api/client';
import { follow } from '../../api/follow';
import { key } from '../../api/key';
import type { Job, Progress } from '../../api/types';
import { clock, dataset, method, methods, model, tags, title } from '../../lib/format';
import { useLoad } from '../../lib/load';
import { href } from '../../router';
import { Copy, Loading, State, Tags, Trouble } from '../../ui/parts';
import { Actions } from './actions';
import { Documents } from './documents';
import { GateVerdict } from './gate';
import { Facts, Results } from './results';
import { Running } from './running';
import { Speed } from './speed';
import { Timeline } from './timeline';

export function isOpen(job: Job): boolean {
  return job.state === 'queued' || job.state === 'planning' || job.state === 'running';
}

export function JobPage({ id }: { id: string }) {
  const loaded = useLoad(id, () => ok(api.GET('/jobs/{id}', { params: { path: { id } } })));
  const progress = useSignal<Progress | null>(null);
  // Grows with every dataset that ends: the numbers are then read anew.
  const ended = useSignal(0);
  const as = key.value;

  // Followed once for a job and key.
  useEffect(() => {
    const stop = new AbortController();
    const handlers = {
      state: () => loaded.reload(),
      dataset: () => {
        ended.value += 1;
      },
      progress: (now: Progress) => {
        progress.value = now;
      },
    };
    void follow(id, handlers, stop.signal);
    return () => stop.abort();
  }, [id, as]);

  const job = loaded.data;
  if (job === null) {
    return (
      <>
        <h1>Job</h1>
        <Trouble error={loaded.error} what="Reading the job" />
        {loaded.loading && <Loading what="the job" />}
      </>
    );
  }
  const open = isOpen(job);
  const now = open && progress.value !== null ? progress.value : job.progress;
  const turn = `${id} ${job.state} ${ended.value}`;
  return (
    <>
      <p class="crumbs">
        <a href="#/jobs">Jobs</a> <span aria-hidden="true">/</span>
      </p>
      <div class="heading">
        <h1>{title(job)}</h1>
        <span role="status">
          <State of={job.state} />
        </span>
        <Actions job={job} open={open} onCancelled={loaded.reload} />
      </div>
      <Request job={job} />
      {job.error && (
        <div class="notice bad" role="alert">
          <h2>
            Why it failed: <a href="../errors">{job.error.code}</a>
          </h2>
          <p>{job.error.detail}</p>
          {job.error.shard && (
            <p class="faint">
              Shard {job.error.shard.shard}, last run by {job.error.shard.worker}
            </p>
          )}
        </div>
      )}
      <Trouble error={loaded.error} what="Reading the job again" />
      {open && <Running job={job} progress={now} />}
      <Results job={job} turn={turn} />
      <GateVerdict job={job} turn={turn} />
      <Timeline job={job} open={open} turn={turn} />
      <Speed job={job} turn={turn} />
      {!open && <Documents job={job} />}
      <Facts job={job} turn={turn} />
    </>
  );
}

function Request({ job }: { job: Job }) {
  return (
    <dl class="facts request">
      <div>
        <dt>Model</dt>
        <dd>{model(job.model)}</dd>
      </div>
      <div>
        <dt>Datasets</dt>
        <dd>{job.datasets.map(dataset).join(', ')}</dd>
      </div>
      <div>
        <dt>Method</dt>
        <dd>{methods(job.method).map(method).join('; ')}</dd>
      </div>
      <div>
        <dt>Computed in</dt>
        <dd>
          {job.dtype}
          {job.numerics === 'adaptive' && ', adaptive'}
        </dd>
      </div>
      <div>
        <dt>Created</dt>
        <dd>
          <time dateTime={job.created_at}>{clock(job.created_at)}</time>
        </dd>
      </div>
      {job.finished_at && (
        <div>
          <dt>Ended</dt>
          <dd>
            <time dateTime={job.finished_at}>{clock(job.finished_at)}</time>
          </dd>
        </div>
      )}
      <div>
        <dt>Id</dt>
        <dd>
          <code>{job.id}</code> <Copy text={job.id} label="Copy id" />
        </dd>
      </div>
      {tags(job).length > 0 && (
        <div>
          <dt>Tags</dt>
          <dd>
            <Tags of={tags(job)} link={(tag) => href(['history'], { tag })} />
          </dd>
        </div>
      )}
    </dl>
  );
}
