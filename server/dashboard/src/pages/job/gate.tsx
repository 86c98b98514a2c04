// What the gate of a job says.
import { api, ok } from '../../api/client';
import type { Job } from '../../api/types';
import { fixed } from '../../lib/format';
import { useLoad } from '../../lib/load';
import { href } from '../../router';
import { Trouble, VerdictBadge } from '../../ui/parts';
import { Differences } from '../compare/table';

export function GateVerdict({ job, turn }: { job: Job; turn: string }) {
  const gate = useLoad(job.gate ? turn : null, () =>
    ok(api.GET('/jobs/{id}/gate', { params: { path: { id: job.id } } })),
  );
  if (!job.gate) return null;
  return (
    <section aria-labelledby="gate">
      <h2 id="gate">Gate</h2>
      <p>
        Against <a href={href(['jobs', job.gate.baseline])}>{job.gate.baseline.slice(0, 13)}</a>: the mean NLL
        may rise by at most {fixed(job.gate.max_increase, 4)} nats per token.
      </p>
      <Trouble error={gate.error} what="Reading the gate" />
      {gate.data && (
        <>
          <p class="verdict">
            <VerdictBadge of={gate.data.verdict} /> {gate.data.reason}
          </p>
          {gate.data.comparison && <Differences of={gate.data.comparison} />}
        </>
      )}
    </section>
  );
}
