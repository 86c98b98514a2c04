// Keys, lost connections and keyboards.
import { expect, test } from './service';

test.describe('a key', () => {
  test.use({ expected: /401/ });

  test('is asked for, sent and forgotten', async ({ page }) => {
    // The service of the tests is open: what one with keys answers is put in front of it.
    await page.route(/\/jobs\?/, async (route) => {
      if (route.request().headers().authorization === 'Bearer assay_secret') return route.continue();
      return route.fulfill({ status: 401, contentType: 'application/problem+json', body: '{}' });
    });
    await page.goto('#/jobs');
    await page.getByLabel('API key').fill('assay_secret');
    await page.getByRole('button', { name: 'Use this key' }).click();
    await expect(page.getByLabel('API key')).toHaveCount(0);
    await page.reload();
    await expect(page.getByLabel('API key')).toHaveCount(0);
    await page.getByRole('button', { name: 'Forget key' }).click();
    await expect(page.getByLabel('API key')).toBeVisible();
  });
});

test.describe('a lost connection', () => {
  test.use({ expected: /ERR_INTERNET_DISCONNECTED/ });

  test('is told and mended', async ({ page, context }) => {
    await page.goto('#/jobs');
    await expect(page.getByRole('heading', { level: 1 })).toHaveText('Jobs');
    await context.setOffline(true);
    await expect(page.getByText('The service cannot be reached. Reconnecting')).toBeVisible();
    await context.setOffline(false);
    await expect(page.getByText('The service cannot be reached. Reconnecting')).toHaveCount(0);
  });
});

test('all pages are reached by keyboard', async ({ page }) => {
  await page.goto('');
  await page.keyboard.press('Tab');
  await expect(page.getByRole('button', { name: 'Skip to content' })).toBeFocused();
  for (const name of ['New job', 'Compare', 'History', 'Workers']) {
    await page.getByRole('link', { name, exact: true }).first().focus();
    await page.keyboard.press('Enter');
    await expect(page.getByRole('main')).toBeFocused();
  }
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Workers');
  await expect(page.locator('.worker-live')).toContainText('live');
});
