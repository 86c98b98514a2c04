// Every page in both schemes and two widths: nothing serious for axe, nothing wider than the screen.
// The pictures are below build/screenshots, to be looked at.
import { AxeBuilder } from '@axe-core/playwright';
import type { Job } from '../src/api/types';
import { ask, ended, expect, LONG, METHOD, MODEL, OTHER, SCORED, test } from './service';

const WIDTHS = [1280, 375];
const SCHEMES = ['light', 'dark'] as const;

let pages: [name: string, address: string, settled: string | RegExp][] = [];

test.beforeAll(async () => {
  const tags = { branch: 'main' };
  const base = await ended({ model: MODEL, datasets: [SCORED], method: METHOD, tags, name: 'nightly 41' });
  const same = await ended({
    model: MODEL,
    datasets: [SCORED],
    method: METHOD,
    tags,
    name: 'nightly 42',
    reuse: false,
  });
  const gate = { baseline: base.id, max_increase: 0.01 };
  const worse = await ended({
    model: OTHER,
    datasets: [SCORED],
    method: METHOD,
    tags,
    name: 'nightly 43',
    audit: 1,
    gate,
  });
  const running = await ask<Job>('jobs', {
    model: MODEL,
    datasets: [LONG],
    reuse: false,
    name: 'long',
    tags,
  });
  pages = [
    ['jobs', '#/jobs', 'nightly 42'],
    ['new', '#/new', 'Post job'],
    ['running', `#/jobs/${running.id}`, /Perplexity so far/],
    ['job', `#/jobs/${same.id}`, 'Made from'],
    ['gate', `#/jobs/${worse.id}`, 'Sign test p'],
    ['compare', `#/compare?candidate=${worse.id}&baseline=${base.id}&limit=0.01`, 'Got worst'],
    ['pick', '#/compare', 'Choose two succeeded jobs.'],
    ['history', '#/history?tag=branch:main', '▲ worse'],
    ['workers', '#/workers', 'Last heard of'],
  ];
});

for (const scheme of SCHEMES) {
  for (const width of WIDTHS) {
    test(`pages in ${scheme}, ${width} pixels wide`, async ({ page }) => {
      test.slow();
      await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
      await page.setViewportSize({ width, height: 900 });
      for (const [name, address, settled] of pages) {
        await test.step(name, async () => {
          await page.goto(address);
          await expect(page.getByText(settled).first()).toBeVisible();
          await expect(page.getByText('Loading')).toHaveCount(0);
          await page.screenshot({
            path: `../../build/screenshots/${name}-${width}-${scheme}.png`,
            fullPage: true,
          });
          const { violations } = await new AxeBuilder({ page }).analyze();
          expect
            .soft(
              violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`),
              name,
            )
            .toEqual([]);
          const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          expect.soft(overflow, `${name} is wider than the screen`).toBeLessThanOrEqual(0);
        });
      }
    });
  }
}

test.afterAll(async () => {
  const { items } = await ask<{ items: Job[] }>('jobs?state=running');
  for (const job of items) {
    await fetch(new URL(`../jobs/${job.id}`, process.env.ASSAY_UI), { method: 'DELETE' });
  }
});
