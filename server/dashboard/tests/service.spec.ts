// Lost connections and keyboards.
import { expect, test } from './service';

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
