// A service with keys. Once there is one it stays closed, so this comes after all other tests.
import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { expect, OTHER, SCORED, state, test } from './service';

test.use({ expected: /401/ });

test('with a key everything works, and without it nothing', async ({ page }) => {
  const made = ['keys', 'create', '--scope', 'submit', '--name', 'browser'];
  const key = execFileSync(`${process.env.ASSAY_PROGRAMS}/assay-server`, made, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  }).trim();
  const asked = page.getByLabel('API key');
  const use = page.getByRole('button', { name: 'Use this key' });

  await page.goto('#/jobs');
  await asked.fill(`${key.slice(0, -4)}0000`);
  await use.click();
  await expect(asked).toBeVisible();
  await asked.fill(key);
  await use.click();
  await expect(asked).toHaveCount(0);

  // What is asked, followed and fetched carries it.
  await page.goto('#/new');
  await page.getByLabel('Checkpoint below the model root').fill(OTHER);
  await page.getByLabel('Add a path').fill(SCORED);
  await page.keyboard.press('Enter');
  await page.getByLabel('Window, tokens').fill('64');
  await page.getByRole('button', { name: 'Post job' }).click();
  await expect(state(page)).toContainText('succeeded');
  const perplexity = await page.locator('[data-perplexity]').getAttribute('data-perplexity');
  const coming = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Report' }).click();
  const report = await readFile(await (await coming).path(), 'utf8');
  expect(report).toContain(String(perplexity));

  await page.reload();
  await expect(state(page)).toContainText('succeeded');
  await page.getByRole('button', { name: 'Forget key' }).click();
  await expect(asked).toBeVisible();
});
