// Routes are hashes (#/jobs/ID?tab=x): the server then knows one page only.
import { computed, signal } from '@preact/signals';

const hash = signal(location.hash);
addEventListener('hashchange', () => {
  hash.value = location.hash;
});

export interface Route {
  /** The parts of the path: `['jobs', ID]`. */
  path: string[];
  query: URLSearchParams;
}

export const route = computed<Route>(() => {
  const [path = '', query = ''] = hash.value.replace(/^#\/?/, '').split('?', 2);
  return { path: path.split('/').filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
});

/** The address of a route; what is empty in `query` is left out. */
export function href(path: string[], query: Record<string, string | null | undefined> = {}): string {
  const given = Object.entries(query).filter((entry): entry is [string, string] => Boolean(entry[1]));
  const tail = new URLSearchParams(given).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${tail ? `?${tail}` : ''}`;
}

export function go(to: string): void {
  location.hash = to;
}

/** Changes the query of the page that is shown, without a step in the history. */
export function replaceQuery(query: Record<string, string | null | undefined>): void {
  history.replaceState(null, '', href(route.peek().path, query));
  hash.value = location.hash;
}
