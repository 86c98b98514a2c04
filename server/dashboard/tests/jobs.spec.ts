// A job by the form, from the first key press to the numbers.

import type { Job, Page } from '../src/api/types';
import { ask, ended, expect, LONG, MODEL, OTHER, results, SCORED, state, test } from './service';

test('a job is posted by the form, watched, and read as the API has it', async ({ page }) => {
  await page.goto('#/new');
  await page.getByRole('button', { name: 'Browse models…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: MODEL }).click();
  await page.getByRole('button', { name: 'Browse data…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: SCORED }).click();
  await page.getByLabel('Name', { exact: true }).fill('by hand');
  await page.getByLabel('Tags').fill('suite:dashboard');
  await expect(page.locator('pre')).toContainText(`"model": "${MODEL}"`);
  await expect(page.locator('pre')).toContainText('Idempotency-Key');
  await page.getByRole('button', { name: 'Post job' }).dblclick();

  await expect(page).toHaveURL(/#\/jobs\/[0-9a-f-]{36}$/);
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('by hand');
  await expect(state(page)).toContainText('succeeded');
  const id = page.url().split('/').at(-1) ?? '';
  const { datasets } = await results(id);
  const shown = page.locator('[data-perplexity]');
  await expect(shown).toHaveAttribute('data-perplexity', String(datasets[0]?.perplexity));
  await expect(shown).toHaveText(datasets[0]?.perplexity?.toFixed(4) ?? 'none');
  await expect(page.getByRole('img', { name: /attempts? at shards/ })).toBeVisible();

  const all = await ask<Page<Job>>('jobs?tag=suite:dashboard');
  expect(all.items.filter((job) => job.name === 'by hand')).toHaveLength(1);

  await page.getByRole('link', { name: 'Jobs', exact: true }).first().click();
  await page.getByLabel('Search jobs').fill('by hand');
  await expect(page.getByRole('row')).toHaveCount(2);
  await expect(page.getByRole('row', { name: /by hand/ })).toContainText('100 %');
  await page.getByText('Failed', { exact: true }).click();
  await expect(page.getByText('No job is like this.')).toBeVisible();
});

test('an uploaded text is scored under another method', async ({ page }) => {
  await page.goto('#/new');
  await page.getByLabel('Checkpoint below the model root').fill(OTHER);
  await page.getByLabel(/Or upload a file/).setInputFiles({
    name: 'short.txt',
    mimeType: 'text/plain',
    buffer: Buffer.from('Call me Ishmael. Some years ago, never mind how long precisely.'),
  });
  await expect(page.getByText('short.txt is uploaded and added.')).toBeVisible();
  await page.getByLabel('Strided').check();
  await page.getByLabel('Window, tokens').fill('32');
  await page.getByLabel('Stride, tokens').fill('16');
  await page.getByRole('button', { name: 'Post job' }).click();
  await expect(state(page)).toContainText('succeeded');
  await expect(page.getByText('strided, window 32, stride 16').first()).toBeVisible();
});

test('a running job is seen to move and is cancelled', async ({ page }) => {
  const { id } = await ask<Job>('jobs', { model: MODEL, datasets: [LONG], reuse: false, name: 'long' });
  await page.goto(`#/jobs/${id}`);
  await expect(state(page)).toContainText('running');
  await expect(page.getByRole('img', { name: /^Perplexity of moby-dick.txt so far/ })).toBeVisible();
  await page.getByRole('button', { name: 'Cancel job…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel job' }).click();
  await expect(state(page)).toContainText('cancelled');
  expect((await ask<Job>(`jobs/${id}`)).state).toBe('cancelled');
});

test('the report is a file that needs no network', async ({ page, context }) => {
  const job = await ended({ model: MODEL, datasets: [SCORED], name: 'for the report' });
  await page.goto(`#/jobs/${job.id}`);
  const link = page.getByRole('link', { name: 'Report' });
  const address = new URL((await link.getAttribute('href')) ?? '', page.url()).href;
  const html = await (await page.request.get(address)).text();
  await page.goto('about:blank');
  await context.setOffline(true);
  const file = test.info().outputPath('report.html');
  await import('node:fs/promises').then((fs) => fs.writeFile(file, html));
  const report = await context.newPage();
  await report.goto(`file://${file}`);
  const { datasets } = await results(job.id);
  await expect(report.locator('body')).toContainText(String(datasets[0]?.perplexity));
});

test.describe('refusals', () => {
  test.use({ expected: /422|404/ });

  test('what is wrong stands at its field', async ({ page }) => {
    await page.goto('#/new');
    await page.getByLabel('Checkpoint below the model root').fill('no-such-model');
    await page.getByLabel('Add a path').fill('no-such.txt');
    await page.keyboard.press('Enter');
    await page.getByText('More: precision').click();
    await page.getByLabel('Priority').fill('1000');
    await page.getByRole('button', { name: 'Post job' }).click();
    await expect(page.getByRole('alert')).toContainText('Posting the job failed');
    await expect(page.locator('.chosen .wrong')).toContainText('no-such.txt');
    await expect(page.getByLabel('Checkpoint below the model root')).toHaveAccessibleDescription(
      /no-such-model/,
    );
    await expect(page.getByLabel('Priority')).toHaveAccessibleDescription(/100/);
  });

  test('a job that there is not is said to be none', async ({ page }) => {
    await page.goto('#/jobs/01a229d1-51e0-7051-8a06-5e60b2a40a5f');
    await expect(page.getByRole('alert')).toContainText('Reading the job failed');
  });
});
