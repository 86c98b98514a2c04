// Each document once: its mean NLL in the baseline and in the candidate. Above the line it got worse.
import { useMemo } from 'preact/hooks';
import type uPlot from 'uplot';
import { api, ok } from '../../api/client';
import type { Comparison, DatasetComparison, DocumentRow, Job } from '../../api/types';
import { dataset, fixed, integer, method, methods } from '../../lib/format';
import { useLoad } from '../../lib/load';
import { Empty, Loading, Table, Trouble } from '../../ui/parts';
import { axis, Plot } from '../../ui/plot';

/** So many documents are drawn. */
const MOST = 5_000;
/** So many are in the table beside it. */
const LISTED = 200;

interface Point {
  index: number;
  baseline: number;
  candidate: number;
}

export function Scatter({ of, row }: { of: Comparison; row: DatasetComparison }) {
  const points = useLoad(`${of.candidate} ${of.baseline} ${row.name} ${method(row.method)}`, async () => {
    const [candidate, baseline] = await Promise.all([
      documents(of.candidate, row.name, row),
      documents(of.baseline, row.baseline_name ?? row.name, row),
    ]);
    return paired(baseline, candidate, row.unit);
  });
  if (points.error) return <Trouble error={points.error} what="Reading the documents" />;
  if (points.data === null) return <Loading what="documents" />;
  if (points.data.length === 0) return <Empty>No document has counted tokens in both jobs.</Empty>;
  return <Drawn points={points.data} name={row.name} unit={row.unit} documents={row.documents} />;
}

/** The documents of a job's dataset under the method of the row. */
async function documents(id: string, name: string, row: DatasetComparison): Promise<DocumentRow[]> {
  const job: Job = await ok(api.GET('/jobs/{id}', { params: { path: { id } } }));
  if (!job.datasets.some((each) => dataset(each) === name)) return [];
  const way = methods(job.method).findIndex((each) => method(each) === method(row.method));
  const query = { dataset: name, method: Math.max(0, way), limit: MOST };
  return (await ok(api.GET('/jobs/{id}/documents', { params: { path: { id }, query } }))).items;
}

function paired(baseline: DocumentRow[], candidate: DocumentRow[], unit: DatasetComparison['unit']): Point[] {
  const mean = (row: DocumentRow) => row.nll / (unit === 'byte' ? row.bytes : row.scored_tokens);
  const before = new Map(
    baseline.filter((each) => each.scored_tokens > 0).map((each) => [each.index, mean(each)]),
  );
  return candidate
    .flatMap((each) => {
      const was = before.get(each.index);
      return was === undefined || each.scored_tokens === 0
        ? []
        : [{ index: each.index, baseline: was, candidate: mean(each) }];
    })
    .sort((a, b) => a.baseline - b.baseline);
}

interface DrawnProps {
  points: Point[];
  name: string;
  unit: DatasetComparison['unit'];
  documents: number;
}

function Drawn({ points, name, unit, documents }: DrawnProps) {
  const data = useMemo(
    () =>
      [
        points.map((p) => p.baseline),
        points.map((p) => p.candidate),
        points.map((p) => p.baseline),
      ] as uPlot.AlignedData,
    [points],
  );
  const worse = points.filter((p) => p.candidate > p.baseline).length;
  const text = `Mean NLL of ${integer(points.length)} documents of ${name} in both jobs; ${integer(worse)} lie above the line and got worse.`;
  return (
    <>
      <p>
        {text}
        {documents > points.length && ` The dataset has ${integer(documents)} documents.`}
      </p>
      <Plot
        text={text}
        data={data}
        height={320}
        options={(c) => ({
          legend: { show: false },
          cursor: { y: false },
          scales: { x: { time: false } },
          series: [
            {},
            {
              label: 'candidate',
              stroke: c.accent,
              paths: () => null,
              points: { show: true, size: 6, stroke: c.accent, fill: c.band },
            },
            { label: 'no change', stroke: c.faint, dash: [5, 5], width: 1, points: { show: false } },
          ],
          axes: [axis(c, `baseline, nats per ${unit}`), axis(c, 'candidate', { size: 56 })],
        })}
      >
        <Table label={`Mean NLL of the documents of ${name}`}>
          <thead>
            <tr>
              <th scope="col" class="number">
                Document
              </th>
              <th scope="col" class="number">
                Baseline
              </th>
              <th scope="col" class="number">
                Candidate
              </th>
            </tr>
          </thead>
          <tbody>
            {points.slice(0, LISTED).map((p) => (
              <tr key={p.index}>
                <th scope="row" class="number">
                  {integer(p.index)}
                </th>
                <td class="number">{fixed(p.baseline, 4)}</td>
                <td class="number">{fixed(p.candidate, 4)}</td>
              </tr>
            ))}
          </tbody>
        </Table>
        {points.length > LISTED && (
          <p class="faint">The first {LISTED} by baseline; GET /jobs/ID/documents has all.</p>
        )}
      </Plot>
    </>
  );
}
