// The small parts that all pages are made of.
import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { ApiError } from '../api/client';
import type { JobState, Verdict } from '../api/types';
import { fixed } from '../lib/format';

const STATES: Record<JobState, string> = {
  queued: '○',
  planning: '◔',
  running: '◑',
  succeeded: '✓',
  failed: '✕',
  cancelled: '⊘',
};

/** A state by its word and a sign, so that colour only helps. */
export function State({ of }: { of: JobState }) {
  return (
    <span class={`badge state-${of}`}>
      <span aria-hidden="true">{STATES[of]}</span> {of}
    </span>
  );
}

const VERDICTS: Record<Verdict, string> = { pass: '✓', fail: '✕', inconclusive: '?' };

export function VerdictBadge({ of }: { of: Verdict | null | undefined }) {
  if (!of) return <span class="faint">—</span>;
  return (
    <span class={`badge verdict-${of}`}>
      <span aria-hidden="true">{VERDICTS[of]}</span> {of}
    </span>
  );
}

export function Bar({ part, all, label }: { part: number; all: number | null | undefined; label: string }) {
  const share = all ? Math.min(100, (100 * part) / all) : 0;
  return (
    <div
      class="bar"
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.floor(share)}
      aria-valuetext={all ? `${fixed(share, 0)} %` : 'not planned yet'}
    >
      <div style={{ width: `${share}%` }} />
    </div>
  );
}

/** What went wrong, in the words of the service. */
export function Trouble({ error, what }: { error: Error | null; what: string }) {
  if (error === null) return null;
  const problem = error instanceof ApiError ? error.problem : null;
  return (
    <div class="notice bad" role="alert">
      <p>
        <strong>{what} failed.</strong> {error.message}
      </p>
      {problem && (
        <p class="faint">
          <a href="../errors">{problem.code}</a> {problem.title}
          {problem.request_id && ` · request ${problem.request_id}`}
        </p>
      )}
    </div>
  );
}

/** A table may be wider than a phone: then it scrolls by itself, by keyboard too. */
export function Table({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached by keyboard
    <section class="scroll" aria-label={label} tabIndex={0}>
      <table>{children}</table>
    </section>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Loading({ what }: { what: string }) {
  return <p class="empty">Loading {what}…</p>;
}

/** Puts a text on the clipboard, and says so. */
export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const said = useSignal('');
  useEffect(() => {
    said.value = '';
  }, [text, said]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      said.value = 'Copied';
    } catch {
      said.value = 'This browser allows no copying here; select the text instead.';
    }
  };
  return (
    <span class="copy">
      <button type="button" class="small" onClick={copy}>
        {label}
      </button>
      <span role="status" class="faint">
        {said.value}
      </span>
    </span>
  );
}

export function Tags({ of, link }: { of: string[]; link: (tag: string) => string }) {
  return (
    <>
      {of.map((tag) => (
        <a key={tag} class="tag" href={link(tag)}>
          {tag}
        </a>
      ))}
    </>
  );
}
