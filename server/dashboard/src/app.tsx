// The frame around all pages: ways to them, the key, and whether the service is reached.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { reachable } from './api/client';
import { forget, keep, key, refused } from './api/key';
import { Compare } from './pages/compare';
import { History } from './pages/history';
import { JobPage } from './pages/job';
import { Jobs } from './pages/jobs';
import { NewJob } from './pages/new';
import { Workers } from './pages/workers';
import { route } from './router';

const PAGES = [
  { name: 'jobs', label: 'Jobs' },
  { name: 'new', label: 'New job' },
  { name: 'compare', label: 'Compare' },
  { name: 'history', label: 'History' },
  { name: 'workers', label: 'Workers' },
];

function Page() {
  const [page = 'jobs', id] = route.value.path;
  if (page === 'jobs') return id === undefined ? <Jobs /> : <JobPage key={id} id={id} />;
  if (page === 'new') return <NewJob />;
  if (page === 'compare') return <Compare />;
  if (page === 'history') return <History />;
  if (page === 'workers') return <Workers />;
  return (
    <>
      <h1>No such page</h1>
      <p>
        <a href="#/jobs">All jobs</a>
      </p>
    </>
  );
}

export function App() {
  const main = useRef<HTMLElement>(null);
  const [page = 'jobs', id] = route.value.path;
  const first = useRef(true);
  // Another page begins at its heading, for those who hear it as well.
  useEffect(() => {
    document.title = `${PAGES.find((p) => p.name === page)?.label ?? 'Assay'}${id ? ` ${id.slice(0, 8)}` : ''} · Assay`;
    if (first.current) first.current = false;
    else {
      main.current?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  }, [page, id]);

  return (
    <>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        Skip to content
      </button>
      <header>
        <a class="brand" href="#/jobs">
          Assay
        </a>
        <nav aria-label="Pages">
          {PAGES.map(({ name, label }) => (
            <a key={name} href={`#/${name}`} aria-current={page === name && !id ? 'page' : undefined}>
              {label}
            </a>
          ))}
        </nav>
        <div class="aside">
          <a href="../docs">API</a>
          {key.value !== null && (
            <button type="button" class="small" onClick={forget}>
              Forget key
            </button>
          )}
        </div>
      </header>
      <div role="status" class="banner-place">
        {!reachable.value && (
          <p class="banner">The service cannot be reached. Reconnecting; what is shown may be old.</p>
        )}
      </div>
      <main id="main" ref={main} tabIndex={-1}>
        {refused.value !== null && <KeyPrompt reason={refused.value} />}
        <Page />
      </main>
    </>
  );
}

function KeyPrompt({ reason }: { reason: string }) {
  const typed = useSignal('');
  return (
    <form
      class="notice key"
      onSubmit={(event) => {
        event.preventDefault();
        if (typed.value.trim()) keep(typed.value.trim());
      }}
    >
      <h2>{reason}</h2>
      <label for="key">API key</label>
      <div class="row">
        <input
          id="key"
          type="password"
          autocomplete="off"
          spellcheck={false}
          value={typed}
          onInput={(event) => {
            typed.value = event.currentTarget.value;
          }}
        />
        <button type="submit" class="primary">
          Use this key
        </button>
      </div>
      <p class="faint">It is kept for this tab only. `assay-server keys create` makes one.</p>
    </form>
  );
}
