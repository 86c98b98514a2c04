// All jobs, the newest first, as they stand now.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api, ok } from '../api/client';
import type { Job, JobState } from '../api/types';
import {
  ago,
  clock,
  dataset,
  duration,
  method,
  methods,
  model,
  percent,
  rate,
  tags,
  title,
} from '../lib/format';
import { useLoad, useSettled } from '../lib/load';
import { href, replaceQuery, route } from '../router';
import { Bar, Empty, Loading, State, Table, Tags, Trouble } from '../ui/parts';

const PAGE = 50;
const EVERY = 2_000;

const FILTERS: { value: string; label: string }[] = [
  { value: '', label: 'All' },
  { value: 'queued,planning,running', label: 'Open' },
  { value: 'succeeded', label: 'Succeeded' },
  { value: 'failed', label: 'Failed' },
  { value: 'cancelled', label: 'Cancelled' },
];

export function Jobs() {
  const { query } = route.value;
  const state = query.get('state') ?? '';
  const tag = query.get('tag') ?? '';
  const text = useSignal(query.get('q') ?? '');
  const q = useSettled(text.value);
  // The cursors of the pages before this one.
  const before = useSignal<string[]>([]);
  const cursor = before.value.at(-1);

  // What is typed goes into the address, never back.
  useEffect(() => {
    if (q !== (query.get('q') ?? '')) {
      before.value = [];
      replaceQuery({ state, tag, q });
    }
  }, [q]);

  const jobs = useLoad(
    JSON.stringify([state, tag, q, cursor]),
    () =>
      ok(
        api.GET('/jobs', {
          params: {
            query: {
              state: state ? (state.split(',') as JobState[]) : undefined,
              tag: tag || undefined,
              q: q || undefined,
              cursor,
              limit: PAGE,
            },
          },
        }),
      ),
    EVERY,
  );
  const filtered = Boolean(state || tag || q);

  return (
    <>
      <div class="heading">
        <h1>Jobs</h1>
        <a class="button primary" href="#/new">
          New job
        </a>
      </div>
      <search class="filters">
        <fieldset class="segments">
          <legend class="hidden">State</legend>
          {FILTERS.map(({ value, label }) => (
            <label key={value}>
              <input
                type="radio"
                name="state"
                checked={state === value}
                onChange={() => {
                  before.value = [];
                  replaceQuery({ state: value, tag, q });
                }}
              />
              <span>{label}</span>
            </label>
          ))}
        </fieldset>
        <label class="grow">
          <span class="hidden">Search jobs</span>
          <input
            type="search"
            placeholder="Search name, model, tag or id"
            value={text}
            onInput={(event) => {
              text.value = event.currentTarget.value;
            }}
          />
        </label>
        {tag && (
          <span class="tag">
            {tag}{' '}
            <button
              type="button"
              class="plain"
              aria-label={`Show jobs without the tag ${tag} too`}
              onClick={() => replaceQuery({ state, q })}
            >
              ×
            </button>
          </span>
        )}
      </search>
      <Trouble error={jobs.error} what="Listing jobs" />
      {jobs.loading && <Loading what="jobs" />}
      {jobs.data && jobs.data.items.length === 0 && (
        <Empty>
          {filtered ? (
            <>
              No job is like this.{' '}
              <button
                type="button"
                class="plain"
                onClick={() => {
                  text.value = '';
                  replaceQuery({});
                }}
              >
                Show all jobs
              </button>
            </>
          ) : (
            <>
              There is no job yet. <a href="#/new">Post the first one</a>
            </>
          )}
        </Empty>
      )}
      {jobs.data && jobs.data.items.length > 0 && <List jobs={jobs.data.items} />}
      <nav class="pager" aria-label="Pages of jobs">
        <button
          type="button"
          disabled={before.value.length === 0}
          onClick={() => {
            before.value = before.value.slice(0, -1);
          }}
        >
          Newer
        </button>
        <button
          type="button"
          disabled={!jobs.data?.next}
          onClick={() => {
            const next = jobs.data?.next;
            if (next) before.value = [...before.value, next];
          }}
        >
          Older
        </button>
      </nav>
    </>
  );
}

function List({ jobs }: { jobs: Job[] }) {
  const now = Date.now();
  return (
    <Table label="Jobs">
      <thead>
        <tr>
          <th scope="col">State</th>
          <th scope="col">Name</th>
          <th scope="col" class="wide">
            Progress
          </th>
          <th scope="col">Model</th>
          <th scope="col">Datasets</th>
          <th scope="col">Method</th>
          <th scope="col" class="number">
            Tokens/s
          </th>
          <th scope="col" class="number">
            Age
          </th>
          <th scope="col">Tags</th>
        </tr>
      </thead>
      <tbody>
        {jobs.map((job) => (
          <Row key={job.id} job={job} now={now} />
        ))}
      </tbody>
    </Table>
  );
}

function Row({ job, now }: { job: Job; now: number }) {
  const { progress } = job;
  const names = job.datasets.map(dataset);
  const conventions = methods(job.method);
  const open = ['queued', 'planning', 'running'].includes(job.state);
  return (
    <tr>
      <td>
        <State of={job.state} />
      </td>
      <th scope="row">
        <a href={href(['jobs', job.id])}>{title(job)}</a>
      </th>
      <td>
        <div class="progress">
          <Bar
            part={progress.scored_tokens}
            all={progress.planned_tokens}
            label={`Progress of ${title(job)}`}
          />
          <span>{percent(progress.scored_tokens, progress.planned_tokens)}</span>
          {open && progress.eta_seconds != null && (
            <span class="faint">{duration(progress.eta_seconds)} left</span>
          )}
        </div>
      </td>
      <td class="clip" title={model(job.model)}>
        {model(job.model)}
      </td>
      <td class="clip" title={names.join(', ')}>
        {names[0]}
        {names.length > 1 && <span class="faint"> +{names.length - 1}</span>}
      </td>
      <td title={conventions.map(method).join('; ')}>{conventions.map((m) => m.convention).join(', ')}</td>
      <td class="number">{rate(progress.tokens_per_second)}</td>
      <td class="number">
        <time dateTime={job.created_at} title={clock(job.created_at)}>
          {ago(job.created_at, now)}
        </time>
      </td>
      <td>
        <Tags of={tags(job)} link={(tag) => href(['jobs'], { tag })} />
      </td>
    </tr>
  );
}
