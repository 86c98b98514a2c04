// What all tests share: pages that are watched for what none may do, and the API beside them.
import { test as base, expect, type Locator, type Page } from '@playwright/test';
import type { Job, JobResult } from '../src/api/types';

export const SCORED = 'excerpt.jsonl';
export const LONG = 'moby-dick.txt';
export const MODEL = 'SmolLM2-135M-Instruct.Q4_1.gguf';
export const OTHER = 'llama_gqa';
/** A window that both models have. */
export const METHOD = { convention: 'rolling', window: 512 };

interface Watched {
  /** Console messages that a test expects, such as those of refused requests. */
  expected: RegExp;
}

export const test = base.extend<Watched & { watch: undefined }>({
  expected: [/^$/, { option: true }],
  watch: [
    async ({ page, baseURL, expected }, use) => {
      const seen: string[] = [];
      const { origin } = new URL(baseURL ?? '');
      page.on('console', (message) => {
        if (message.type() === 'error' || message.type() === 'warning') seen.push(message.text());
      });
      page.on('pageerror', (error) => seen.push(String(error)));
      page.on('request', (request) => {
        const url = new URL(request.url());
        if (url.origin !== origin && url.protocol !== 'data:' && url.protocol !== 'blob:') {
          seen.push(`a request to ${url.origin}`);
        }
      });
      await page.addInitScript(() => {
        document.addEventListener('securitypolicyviolation', (event) =>
          console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`),
        );
      });
      await use(undefined);
      expect(seen.filter((text) => !expected.test(text))).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };

const root = new URL('..', process.env.ASSAY_UI ?? 'http://unset.invalid/').href;

/** Asks the API itself. */
export async function ask<T>(path: string, body?: unknown): Promise<T> {
  const response = await fetch(new URL(path, root), {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return (await response.json()) as T;
}

/** A job that has ended, posted by the API. */
export async function ended(body: Record<string, unknown>): Promise<Job> {
  const { id } = await ask<Job>('jobs', body);
  // The stream ends with the job.
  await (await fetch(new URL(`jobs/${id}/events`, root))).text();
  return ask<Job>(`jobs/${id}`);
}

export function results(id: string): Promise<JobResult> {
  return ask<JobResult>(`jobs/${id}/results`);
}

/** Where the page of a job says the state of it. */
export function state(page: Page): Locator {
  return page.locator('main .heading').getByRole('status');
}
