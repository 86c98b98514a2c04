// A job that computes: how far each dataset is, and what its numbers are so far.
import { useMemo } from 'preact/hooks';
import { api, ok } from '../../api/client';
import type { Job, PartialDataset, Progress } from '../../api/types';
import { bytes, duration, fixed, integer, method, percent, rate } from '../../lib/format';
import { useLoad } from '../../lib/load';
import { Bar, Table, Trouble } from '../../ui/parts';
import { axis, Plot } from '../../ui/plot';

const EVERY = 3_000;

export function Running({ job, progress }: { job: Job; progress: Progress }) {
  const partial = useLoad(
    job.id,
    () => ok(api.GET('/jobs/{id}/partial', { params: { path: { id: job.id } } })),
    EVERY,
  );
  return (
    <section aria-labelledby="progress">
      <h2 id="progress">Progress</h2>
      <p class="figures">
        <span>
          <b>{percent(progress.scored_tokens, progress.planned_tokens)}</b> counted
        </span>
        <span>
          <b>{rate(progress.tokens_per_second)}</b> tokens/s
        </span>
        <span>
          <b>{duration(progress.eta_seconds)}</b> left
        </span>
      </p>
      {progress.download && (
        <p>
          Fetching files from the hub: {bytes(progress.download.bytes)} of{' '}
          {bytes(progress.download.total_bytes)}
        </p>
      )}
      <Table label="Progress of each dataset">
        <thead>
          <tr>
            <th scope="col">Dataset</th>
            <th scope="col">Method</th>
            <th scope="col" class="wide">
              Progress
            </th>
            <th scope="col" class="number">
              Tokens
            </th>
            <th scope="col" class="number">
              Shards
            </th>
          </tr>
        </thead>
        <tbody>
          {progress.datasets.map((row) => (
            <tr key={`${row.name} ${method(row.method)}`}>
              <th scope="row">{row.name}</th>
              <td>{method(row.method)}</td>
              <td>
                <div class="progress">
                  <Bar part={row.scored_tokens} all={row.planned_tokens} label={`Progress of ${row.name}`} />
                  <span>{percent(row.scored_tokens, row.planned_tokens)}</span>
                </div>
              </td>
              <td class="number">
                {integer(row.scored_tokens)} / {integer(row.planned_tokens)}
              </td>
              <td class="number">
                {integer(row.shards_done)} / {integer(row.shards)}
              </td>
            </tr>
          ))}
        </tbody>
      </Table>
      <Trouble error={partial.error} what="Reading the numbers so far" />
      {partial.data?.datasets.map((row) => (
        <Convergence key={`${row.name} ${method(row.method)}`} row={row} />
      ))}
    </section>
  );
}

/** The bounds of the perplexity: the interval is one of the mean NLL, of which it is the exponential. */
function bounds(
  perplexity: number | null | undefined,
  half: number | null | undefined,
): [number, number] | null {
  return perplexity == null || half == null
    ? null
    : [perplexity * Math.exp(-half), perplexity * Math.exp(half)];
}

export function Convergence({ row }: { row: PartialDataset }) {
  const { points } = row;
  const data = useMemo(() => {
    const ranges = points.map((p) => bounds(p.perplexity, p.confidence_95));
    return [
      points.map((p) => p.scored_tokens),
      points.map((p) => p.perplexity ?? null),
      ranges.map((r) => r?.[0] ?? null),
      ranges.map((r) => r?.[1] ?? null),
    ] as uPlot.AlignedData;
  }, [points]);
  if (points.length === 0) return null;
  const range = bounds(row.perplexity, row.confidence_95);
  const text =
    `Perplexity of ${row.name} so far: ${fixed(row.perplexity, 4)} over ${integer(row.scored_tokens)} tokens` +
    (range ? `, 95 % interval ${fixed(range[0], 2)} to ${fixed(range[1], 2)}.` : '.');
  return (
    <section>
      <h3>
        Perplexity so far: {row.name} <span class="faint">{method(row.method)}</span>
      </h3>
      <p>
        <b class="figure">{fixed(row.perplexity, 4)}</b>{' '}
        {range
          ? `95 % interval ${fixed(range[0], 2)} to ${fixed(range[1], 2)}`
          : 'no interval under 5 clusters'}
        , over {integer(row.scored_tokens)} of {integer(row.planned_tokens)} tokens, {integer(row.clusters)}{' '}
        clusters.
      </p>
      <p class="faint">Of what is counted so far, the largest shards first: not an estimate of the end.</p>
      <Plot
        text={text}
        data={data}
        options={(c) => ({
          legend: { show: false },
          cursor: { y: false },
          // The end of the axis is the end of the job.
          scales: { x: { time: false, range: [0, row.planned_tokens ?? row.scored_tokens] } },
          bands: [{ series: [3, 2], fill: c.band }],
          series: [
            {},
            {
              label: 'perplexity',
              stroke: c.accent,
              width: 2,
              points: { show: true, size: 5, fill: c.accent },
            },
            { label: 'low', stroke: c.band, width: 1, points: { show: false } },
            { label: 'high', stroke: c.band, width: 1, points: { show: false } },
          ],
          axes: [axis(c, 'tokens counted'), axis(c, 'perplexity', { size: 64 })],
        })}
      >
        <Table label={`Perplexity of ${row.name} so far`}>
          <thead>
            <tr>
              <th scope="col" class="number">
                Tokens
              </th>
              <th scope="col" class="number">
                Perplexity
              </th>
              <th scope="col" class="number">
                Mean NLL
              </th>
              <th scope="col" class="number">
                ± 95 %
              </th>
            </tr>
          </thead>
          <tbody>
            {points.map((p) => (
              <tr key={p.scored_tokens}>
                <td class="number">{integer(p.scored_tokens)}</td>
                <td class="number">{fixed(p.perplexity, 4)}</td>
                <td class="number">{fixed(p.mean_nll, 4)}</td>
                <td class="number">{fixed(p.confidence_95, 4)}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      </Plot>
    </section>
  );
}
