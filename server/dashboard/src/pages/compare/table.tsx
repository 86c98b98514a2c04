// The paired differences of a comparison, one row for each dataset under each method.
import type { Comparison } from '../../api/types';
import { fixed, integer, method, signed } from '../../lib/format';
import { Table, VerdictBadge } from '../../ui/parts';

export function Differences({ of }: { of: Comparison }) {
  const isJudged = of.verdict != null;
  return (
    <>
      <Table label="Differences by dataset">
        <thead>
          <tr>
            <th scope="col">Dataset</th>
            {isJudged && <th scope="col">Verdict</th>}
            <th scope="col" class="number">
              Baseline NLL
            </th>
            <th scope="col" class="number">
              Candidate NLL
            </th>
            <th scope="col" class="number">
              Difference
            </th>
            <th scope="col" class="number">
              ± 95 %
            </th>
            <th scope="col" class="number">
              Perplexity ratio
            </th>
            <th scope="col" class="number">
              Worse / better / equal
            </th>
            <th scope="col" class="number">
              Sign test p
            </th>
            <th scope="col">Method</th>
          </tr>
        </thead>
        <tbody>
          {of.datasets.map((row) => (
            <tr key={`${row.name} ${method(row.method)}`}>
              <th scope="row">
                {row.name}
                {row.baseline_name && row.baseline_name !== row.name && (
                  <span class="faint"> and {row.baseline_name}</span>
                )}
              </th>
              {isJudged && (
                <td>
                  <VerdictBadge of={row.verdict} />
                </td>
              )}
              <td class="number">{fixed(row.baseline_mean_nll, 4)}</td>
              <td class="number">{fixed(row.candidate_mean_nll, 4)}</td>
              <td class="number strong">{signed(row.difference, 6)}</td>
              <td class="number">{fixed(row.confidence_95, 6)}</td>
              <td class="number">{fixed(row.perplexity_ratio, 6)}</td>
              <td class="number">
                {integer(row.worse)} / {integer(row.better)} / {integer(row.equal)}
              </td>
              <td class="number">{fixed(row.sign_test_p, 4)}</td>
              <td>{method(row.method)}</td>
            </tr>
          ))}
        </tbody>
      </Table>
      <p class="faint">In nats per {of.datasets[0]?.unit ?? 'token'}. Above zero the candidate is worse.</p>
    </>
  );
}
