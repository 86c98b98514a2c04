// Server-sent events of a job, read with fetch: EventSource cannot send a key.
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { ApiError, problemOf, ROOT, reachable, request } from './client';
import type { DatasetResult, Progress } from './types';

export interface Handlers {
  /** The job is in another state. */
  state(): void;
  /** A dataset has ended. */
  dataset(result: DatasetResult): void;
  progress(progress: Progress): void;
}

/** Milliseconds before the first try again; each further one waits twice as long. */
const FIRST_WAIT = 1_000;
const LONGEST_WAIT = 15_000;

/** Follows a job until its last event, through lost connections, or until `stop` is aborted. */
export async function follow(id: string, handlers: Handlers, stop: AbortSignal): Promise<void> {
  let seen: string | null = null;
  let wait = FIRST_WAIT;
  while (!stop.aborted) {
    try {
      const response = await request(
        new Request(`${ROOT}/jobs/${id}/events`, {
          headers: seen === null ? {} : { 'Last-Event-ID': seen },
          signal: stop,
        }),
      );
      // Everything was seen.
      if (response.status === 204) return;
      if (!response.ok || response.body === null) {
        throw problemOf(await response.json().catch(() => null), response.status);
      }
      const events = response.body
        .pipeThrough(new TextDecoderStream())
        .pipeThrough(new EventSourceParserStream());
      const reader = events.getReader();
      for (let next = await reader.read(); !next.done; next = await reader.read()) {
        seen = next.value.id ?? seen;
        wait = FIRST_WAIT;
        deliver(next.value.event, next.value.data, handlers);
      }
      // The stream has ended: with the job, which 204 tells at once, or with the server.
    } catch (cause) {
      if (stop.aborted) return;
      // A refusal stays one; the page has the reason from its own request.
      if (cause instanceof ApiError && cause.status >= 400 && cause.status < 500) return;
      reachable.value = false;
      await pause(wait, stop);
      wait = Math.min(2 * wait, LONGEST_WAIT);
    }
  }
}

function deliver(event: string | undefined, data: string, handlers: Handlers): void {
  if (event === 'state') handlers.state();
  else if (event === 'dataset') handlers.dataset(JSON.parse(data) as DatasetResult);
  else if (event === 'progress') handlers.progress(JSON.parse(data) as Progress);
}

function pause(milliseconds: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    stop.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
