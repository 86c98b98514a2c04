// The one way to the API: typed by its OpenAPI document, errors as exceptions of one kind.
import { signal } from '@preact/signals';
import createClient from 'openapi-fetch';
import { key, refused } from './key';
import type { paths } from './schema';
import type { FieldError, Problem } from './types';

/** The API stands one level above the pages, which are below /ui/. */
export const ROOT = new URL('..', document.baseURI).pathname.replace(/\/$/, '');

/** Whether the last request reached the service. */
export const reachable = signal(true);

/** What went wrong with a request, in the words of the service where it has said something. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly problem: Problem | null,
  ) {
    super(message);
  }

  get fields(): FieldError[] {
    return this.problem?.errors ?? [];
  }
}

export function headers(): Record<string, string> {
  return key.value === null ? {} : { Authorization: `Bearer ${key.value}` };
}

/** `fetch` that says whether the service was reached, and asks for a key where one is wanted. */
export async function request(input: Request): Promise<Response> {
  for (const [name, value] of Object.entries(headers())) input.headers.set(name, value);
  let response: Response;
  try {
    response = await fetch(input);
  } catch (cause) {
    if (input.signal.aborted) throw cause;
    reachable.value = false;
    throw new ApiError('The service cannot be reached. This page tries again by itself.', 0, null);
  }
  // A proxy in front of a service that is down answers for it.
  reachable.value = ![502, 504].includes(response.status);
  if (response.status === 401) {
    refused.value = key.value === null ? 'This service wants a key.' : 'The service refused this key.';
  }
  return response;
}

export const api = createClient<paths>({
  baseUrl: location.origin + ROOT,
  fetch: request,
  querySerializer: { array: { style: 'form', explode: false } },
});

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The body of an answer, or its problem thrown. */
export async function ok<T>(answer: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await answer;
  if (response.ok) return data as T;
  throw problemOf(error, response.status);
}

export function problemOf(body: unknown, status: number): ApiError {
  if (typeof body === 'object' && body !== null && 'detail' in body) {
    const problem = body as Problem;
    return new ApiError(problem.detail, status, problem);
  }
  return new ApiError(`The service answered with status ${status}.`, status, null);
}
