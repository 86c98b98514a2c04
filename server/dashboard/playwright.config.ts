import { defineConfig } from '@playwright/test';

// scripts/test-dashboard.sh starts the service and says where its pages are.
const ui = process.env.ASSAY_UI;
if (ui === undefined) throw new Error('ASSAY_UI is not set; run scripts/test-dashboard.sh');

export default defineConfig({
  testDir: 'tests',
  outputDir: '../../build/playwright',
  // One service with one worker: tests share its jobs and run in order.
  workers: 1,
  fullyParallel: false,
  retries: 0,
  forbidOnly: true,
  timeout: 120_000,
  expect: { timeout: 30_000 },
  reporter: [['list']],
  projects: [
    { name: 'open', testIgnore: 'keys.spec.ts' },
    { name: 'keys', testMatch: 'keys.spec.ts', dependencies: ['open'] },
  ],
  use: {
    baseURL: ui,
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      // Root has no sandbox of its own, and containers none at all.
      args: ['--no-sandbox'],
    },
    contextOptions: { reducedMotion: 'reduce' },
    trace: 'retain-on-failure',
  },
});
