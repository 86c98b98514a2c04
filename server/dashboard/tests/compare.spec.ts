// Jobs beside each other, and over time.
import { ended, expect, METHOD, MODEL, OTHER, SCORED, test } from './service';

const tags = { course: 'main' };

test('two jobs are chosen, compared and judged', async ({ page }) => {
  const baseline = await ended({
    model: MODEL,
    datasets: [SCORED],
    method: METHOD,
    name: 'compare base',
    tags,
  });
  const candidate = await ended({
    model: OTHER,
    datasets: [SCORED],
    method: METHOD,
    name: 'compare candidate',
    tags,
  });
  await page.goto('#/compare');
  await page.getByLabel('Search for the candidate').fill('compare candidate');
  await page
    .getByRole('list', { name: 'Jobs for the candidate' })
    .getByRole('button', { name: /^compare candidate/ })
    .click();
  await page.getByLabel('Search for the baseline').fill('compare base');
  await page
    .getByRole('list', { name: 'Jobs for the baseline' })
    .getByRole('button', { name: /^compare base/ })
    .click();
  await expect(page).toHaveURL(new RegExp(`candidate=${candidate.id}&baseline=${baseline.id}`));
  await page.getByLabel(/Largest increase/).fill('0.01');
  await page.getByRole('button', { name: 'Judge' }).click();
  await expect(page.getByText('Verdict: ✕ fail')).toBeVisible();
  await expect(page.getByRole('img', { name: /^Mean NLL of \d+ documents/ })).toBeVisible();
  await expect(page.getByRole('heading', { name: 'Got worst' })).toBeVisible();
});

test('a tag has a course, and a regression is marked in it', async ({ page }) => {
  await page.goto('#/history');
  await page.getByLabel('Tag', { exact: true }).fill('course:main');
  await page.getByRole('button', { name: 'Show' }).click();
  await expect(page.getByRole('img', { name: /^Perplexity of .* 1 got worse/ })).toBeVisible();
  await expect(page.getByRole('link', { name: '▲ worse' })).toBeVisible();
});

test.describe('refusals', () => {
  test.use({ expected: /409/ });

  test('what cannot be compared is refused in words', async ({ page }) => {
    const one = await ended({ model: OTHER, datasets: [SCORED], method: METHOD, dtype: 'float32' });
    const other = await ended({ model: OTHER, datasets: [SCORED], method: METHOD, dtype: 'bfloat16' });
    await page.goto(`#/compare?candidate=${one.id}&baseline=${other.id}`);
    await expect(page.getByRole('alert')).toContainText('dtype');
  });
});
