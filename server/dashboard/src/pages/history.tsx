// A tag over time: what each dataset came to in each job that has it, and where it got worse.
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { api, ok } from '../api/client';
import type { DatasetComparison, DatasetResult, Job } from '../api/types';
import { clock, fixed, integer, method, signed, things, title } from '../lib/format';
import { useLoad } from '../lib/load';
import { href, replaceQuery, route } from '../router';
import { Empty, Loading, Table, Trouble } from '../ui/parts';
import { axis, Plot } from '../ui/plot';

/** So many of the newest jobs are shown. */
const MOST = 40;

interface Point {
  job: Job;
  result: DatasetResult;
  /** Against the job before it; null for the first, and where the service refuses to compare. */
  change: DatasetComparison | null;
  /** Why there is none, in the words of the service. */
  refusal: string | null;
}

type Series = [name: string, points: Point[]];

export function History() {
  const tag = route.value.query.get('tag') ?? '';
  const typed = useSignal(tag);
  const history = useLoad(tag || null, () => load(tag));
  return (
    <>
      <h1>History of a tag</h1>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          replaceQuery({ tag: typed.value.trim() });
        }}
      >
        <label class="grow">
          Tag{' '}
          <input
            type="text"
            placeholder="key:value"
            value={typed}
            onInput={(event) => {
              typed.value = event.currentTarget.value;
            }}
          />
        </label>
        <button type="submit" class="primary">
          Show
        </button>
      </form>
      {!tag && (
        <Empty>
          Give a tag as key:value, such as branch:main. The succeeded jobs with it stand here in order.
        </Empty>
      )}
      {history.loading && <Loading what="the jobs with this tag and their comparisons" />}
      <Trouble error={history.error} what="Reading the history" />
      {history.data?.length === 0 && <Empty>No succeeded job has the tag {tag}.</Empty>}
      {history.data?.map(([name, points]) => (
        <Course key={name} name={name} points={points} />
      ))}
    </>
  );
}

/** The results of the jobs with a tag, by dataset and method, each held against the one before it. */
async function load(tag: string): Promise<Series[]> {
  const list = await ok(api.GET('/jobs', { params: { query: { tag, state: ['succeeded'], limit: MOST } } }));
  const jobs = list.items.reverse();
  const results = await Promise.all(
    jobs.map((job) => ok(api.GET('/jobs/{id}/results', { params: { path: { id: job.id } } }))),
  );
  const changes = await Promise.all(
    jobs.map(async (job, index) => {
      const before = jobs[index - 1];
      if (before === undefined) return { datasets: [], refusal: null };
      try {
        const body = { candidate: job.id, baseline: before.id, documents: 0 };
        return { datasets: (await ok(api.POST('/comparisons', { body }))).datasets, refusal: null };
      } catch (cause) {
        return { datasets: [], refusal: (cause as Error).message };
      }
    }),
  );
  const series = new Map<string, Point[]>();
  for (const [index, job] of jobs.entries()) {
    for (const result of results[index]?.datasets ?? []) {
      const name = `${result.name}, ${method(result.method)}`;
      const points = series.get(name) ?? [];
      series.set(name, points);
      const compared = changes[index];
      const change = compared?.datasets.find((row) => `${row.name}, ${method(row.method)}` === name) ?? null;
      points.push({ job, result, change, refusal: compared?.refusal ?? null });
    }
  }
  return [...series];
}

/** Whether the interval of the difference lies above zero. */
function isWorse({ change }: Point): boolean {
  return (
    change?.difference != null && change.confidence_95 != null && change.difference > change.confidence_95
  );
}

function Course({ name, points }: { name: string; points: Point[] }) {
  const worse = points.filter(isWorse);
  // The interval is one of the mean NLL, of which the perplexity is the exponential.
  const data = useMemo(() => {
    const half = (p: Point) => p.result.confidence_95 ?? 0;
    const value = (p: Point) => p.result.perplexity ?? null;
    const times = (p: Point, factor: number) =>
      p.result.perplexity == null ? null : p.result.perplexity * factor;
    return [
      points.map((_, index) => index),
      points.map(value),
      points.map((p) => times(p, Math.exp(-half(p)))),
      points.map((p) => times(p, Math.exp(half(p)))),
      points.map((p) => (isWorse(p) ? value(p) : null)),
    ] as uPlot.AlignedData;
  }, [points]);
  const last = points.at(-1);
  const text =
    `Perplexity of ${name} in ${things(points.length, 'job')}, the last ${fixed(last?.result.perplexity, 4)}; ` +
    `${worse.length === 0 ? 'none' : integer(worse.length)} got worse than the one before.`;
  return (
    <section>
      <h2>{name}</h2>
      <p>{text}</p>
      <Plot
        text={text}
        data={data}
        options={(c) => ({
          legend: { show: false },
          cursor: { y: false },
          scales: { x: { time: false, range: (_, min, max) => [min - 0.5, max + 0.5] } },
          series: [
            {},
            {
              label: 'perplexity',
              stroke: c.accent,
              width: 1.5,
              points: { show: true, size: 7, fill: c.accent },
            },
            { label: 'low', stroke: 'transparent', points: { show: false } },
            { label: 'high', stroke: 'transparent', points: { show: false } },
            {
              label: 'worse',
              stroke: c.bad,
              paths: () => null,
              points: { show: true, size: 15, width: 2.5, fill: 'transparent', stroke: c.bad },
            },
          ],
          hooks: { draw: [(plot) => errorBars(plot, c.accent)] },
          axes: [
            axis(c, 'job', {
              incrs: [1, 2, 5, 10],
              values: (_, at) => at.map((n) => (Number.isInteger(n) ? String(n + 1) : '')),
            }),
            axis(c, 'perplexity', { size: 64 }),
          ],
        })}
      />
      <Table label={`History of ${name}`}>
        <thead>
          <tr>
            <th scope="col" class="number">
              #
            </th>
            <th scope="col">Job</th>
            <th scope="col" class="number">
              Perplexity
            </th>
            <th scope="col" class="number">
              ± 95 % (NLL)
            </th>
            <th scope="col" class="number">
              Difference
            </th>
            <th scope="col" class="number">
              ± 95 %
            </th>
            <th scope="col">Against the one before</th>
            <th scope="col">Created</th>
          </tr>
        </thead>
        <tbody>
          {points.map((p, index) => (
            <tr key={p.job.id}>
              <td class="number">{index + 1}</td>
              <th scope="row">
                <a href={href(['jobs', p.job.id])}>{title(p.job)}</a>
              </th>
              <td class="number strong">{fixed(p.result.perplexity, 4)}</td>
              <td class="number">{fixed(p.result.confidence_95, 4)}</td>
              <td class="number">{signed(p.change?.difference, 6)}</td>
              <td class="number">{fixed(p.change?.confidence_95, 6)}</td>
              <td>
                <Against point={p} before={points[index - 1]} />
              </td>
              <td>{clock(p.job.created_at)}</td>
            </tr>
          ))}
        </tbody>
      </Table>
      <p class="faint">
        Each job is paired with the one before it, document by document, in nats per token or, across
        tokenizers, per byte. It got worse where the whole 95 % interval of the difference lies above zero.
      </p>
    </section>
  );
}

function Against({ point, before }: { point: Point; before: Point | undefined }) {
  if (before === undefined) return <span class="faint">first</span>;
  if (point.change === null) return <span class="faint reason">{point.refusal ?? 'not compared'}</span>;
  const link = href(['compare'], { candidate: point.job.id, baseline: before.job.id });
  return (
    <a href={link} class={isWorse(point) ? 'badge verdict-fail' : undefined}>
      {isWorse(point) ? '▲ worse' : point.change.confidence_95 == null ? 'no interval' : 'no regression'}
    </a>
  );
}

/** Bars from the low to the high series, which are not drawn themselves. */
function errorBars(plot: uPlot, stroke: string): void {
  const [xs, , low, high] = plot.data;
  const { ctx } = plot;
  ctx.save();
  ctx.strokeStyle = stroke;
  ctx.lineWidth = devicePixelRatio;
  ctx.beginPath();
  for (const [index, x] of xs.entries()) {
    const [from, to] = [low?.[index], high?.[index]];
    if (from == null || to == null || from === to) continue;
    const left = plot.valToPos(x, 'x', true);
    const cap = 4 * devicePixelRatio;
    const [bottom, top] = [plot.valToPos(from, 'y', true), plot.valToPos(to, 'y', true)];
    ctx.moveTo(left, bottom);
    ctx.lineTo(left, top);
    for (const y of [bottom, top]) {
      ctx.moveTo(left - cap, y);
      ctx.lineTo(left + cap, y);
    }
  }
  ctx.stroke();
  ctx.restore();
}
