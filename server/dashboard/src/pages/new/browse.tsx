// Looks into the roots of the service and picks from them.
import { useSignal } from '@preact/signals';
import { useId, useRef } from 'preact/hooks';
import { api, ok } from '../../api/client';
import { bytes } from '../../lib/format';
import { useLoad } from '../../lib/load';
import { Empty, Loading, Trouble } from '../../ui/parts';

interface Entry {
  name: string;
  path: string;
  kind: string;
  bytes?: number | null;
}

interface Props {
  root: 'models' | 'files';
  /** The word on the button. */
  label: string;
  /** What is asked for. */
  title: string;
  /** Kinds that can be picked; all others are only looked into. */
  kinds: string[];
  onPick(path: string): void;
}

export function Browse({ root, label, title, kinds, onPick }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const shown = useSignal(false);
  const under = useSignal('');
  const list = useLoad(shown.value ? `${root} ${under.value}` : null, () => entries(root, under.value));
  const pick = (path: string) => {
    dialog.current?.close();
    onPick(path);
  };
  const parts = under.value.split('/').filter(Boolean);
  return (
    <>
      <button
        type="button"
        onClick={() => {
          shown.value = true;
          dialog.current?.showModal();
        }}
      >
        {label}
      </button>
      <dialog
        ref={dialog}
        class="browse"
        aria-labelledby={heading}
        onClose={() => {
          shown.value = false;
        }}
      >
        <div class="row between">
          <h2 id={heading}>{title}</h2>
          <button type="button" class="small" onClick={() => dialog.current?.close()}>
            Close
          </button>
        </div>
        <nav class="path" aria-label="Folder">
          <button
            type="button"
            class="plain"
            onClick={() => {
              under.value = '';
            }}
          >
            {root === 'models' ? 'Models' : 'Data'}
          </button>
          {parts.map((part, index) => (
            <span key={parts.slice(0, index + 1).join('/')}>
              {' / '}
              <button
                type="button"
                class="plain"
                onClick={() => {
                  under.value = parts.slice(0, index + 1).join('/');
                }}
              >
                {part}
              </button>
            </span>
          ))}
          {under.value && kinds.includes('directory') && (
            <button type="button" class="small" onClick={() => pick(under.value)}>
              Take all files in this folder
            </button>
          )}
        </nav>
        <Trouble error={list.error} what="Listing the folder" />
        {list.loading && <Loading what="the folder" />}
        {list.data?.length === 0 && <Empty>Nothing here can be picked.</Empty>}
        <ul class="choices" aria-label={title}>
          {list.data?.map((entry) => {
            const isFolder = entry.kind === 'directory';
            return (
              <li key={entry.path}>
                <button
                  type="button"
                  disabled={!isFolder && !kinds.includes(entry.kind)}
                  onClick={() => {
                    if (isFolder) under.value = entry.path;
                    else pick(entry.path);
                  }}
                >
                  <b>
                    {entry.name}
                    {isFolder && '/'}
                  </b>
                  <span class="faint">{isFolder ? 'folder' : `${entry.kind}, ${bytes(entry.bytes)}`}</span>
                </button>
              </li>
            );
          })}
        </ul>
      </dialog>
    </>
  );
}

async function entries(root: 'models' | 'files', under: string): Promise<Entry[]> {
  const params = { query: { under: under || undefined, limit: 1000 } };
  const page = root === 'models' ? ok(api.GET('/models', { params })) : ok(api.GET('/files', { params }));
  return (await page).items;
}
