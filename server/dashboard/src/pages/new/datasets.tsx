// The datasets of a new job: from the data root, or uploaded.

import type { Signal } from '@preact/signals';
import { useSignal } from '@preact/signals';
import { useId } from 'preact/hooks';
import { api, ok, problemOf, ROOT, request } from '../../api/client';
import type { Upload } from '../../api/types';
import { bytes } from '../../lib/format';
import { useLoad } from '../../lib/load';
import { Trouble } from '../../ui/parts';
import { Browse } from './browse';
import { type Draft, type DraftDataset, datasetOf, FORMATS } from './draft';
import { type Errors, of, Wrong } from './field';

export function Datasets({ draft, errors }: { draft: Signal<Draft>; errors: Errors }) {
  const typed = useSignal('');
  const typedId = useId();
  const { datasets } = draft.value;
  const set = (next: DraftDataset[]) => {
    draft.value = { ...draft.value, datasets: next };
  };
  const add = (source: DraftDataset['source'], value: string) => {
    if (value) set([...draft.value.datasets, datasetOf(source, value)]);
  };
  return (
    <fieldset>
      <legend>Datasets</legend>
      {datasets.length > 0 && (
        <ol class="chosen">
          {datasets.map((each, index) => (
            <Chosen
              key={index}
              of={each}
              index={index}
              errors={errors}
              onChange={(next) => set(datasets.map((other, at) => (at === index ? next : other)))}
              onRemove={() => set(datasets.filter((_, at) => at !== index))}
            />
          ))}
        </ol>
      )}
      <Wrong messages={of(errors, 'datasets')} />
      <div class="field">
        <label for={typedId}>Add a path, a folder or a glob below the data root</label>
        <div class="row">
          <input
            id={typedId}
            type="text"
            placeholder="web/**/*.jsonl.gz"
            autocomplete="off"
            spellcheck={false}
            value={typed}
            onInput={(event) => {
              typed.value = event.currentTarget.value;
            }}
            onKeyDown={(event) => {
              if (event.key !== 'Enter') return;
              event.preventDefault();
              add('path', typed.value.trim());
              typed.value = '';
            }}
          />
          <button
            type="button"
            disabled={!typed.value.trim()}
            onClick={() => {
              add('path', typed.value.trim());
              typed.value = '';
            }}
          >
            Add
          </button>
          <Browse
            root="files"
            label="Browse data…"
            title="Choose a dataset"
            kinds={['dataset', 'directory']}
            onPick={(path) => add('path', path)}
          />
        </div>
      </div>
      <Uploads onPick={(name) => add('upload', name)} />
    </fieldset>
  );
}

interface ChosenProps {
  of: DraftDataset;
  index: number;
  errors: Errors;
  onChange(next: DraftDataset): void;
  onRemove(): void;
}

const OPTIONS: [keyof DraftDataset, string][] = [
  ['name', 'Name in the results'],
  ['field', 'Field of the text'],
  ['group_by', 'Group by field'],
  ['limit_documents', 'Take so many documents'],
];

function Chosen({ of: dataset, index, errors, onChange, onRemove }: ChosenProps) {
  const id = useId();
  const path = `datasets[${index}]`;
  const mine = errors.filter((error) => error.field === path || error.field.startsWith(`${path}.`));
  return (
    <li>
      <div class="row between">
        <span class="break">
          <b>{dataset.value}</b> {dataset.source === 'upload' && <span class="faint">upload</span>}
        </span>
        <button type="button" class="small" aria-label={`Remove ${dataset.value}`} onClick={onRemove}>
          Remove
        </button>
      </div>
      <Wrong messages={mine.map((error) => error.detail)} />
      <details open={mine.length > 0 || undefined}>
        <summary>Options of {dataset.value}</summary>
        <div class="grid">
          <div class="field">
            <label for={`${id}-format`}>Format</label>
            <select
              id={`${id}-format`}
              value={dataset.format}
              onChange={(event) => onChange({ ...dataset, format: event.currentTarget.value })}
            >
              <option value="">by the name of the file</option>
              {FORMATS.map((format) => (
                <option key={format} value={format}>
                  {format}
                </option>
              ))}
            </select>
          </div>
          {OPTIONS.map(([name, label]) => (
            <div key={name} class="field">
              <label for={`${id}-${name}`}>{label}</label>
              <input
                id={`${id}-${name}`}
                type="text"
                autocomplete="off"
                aria-invalid={mine.some((error) => error.field === `${path}.${name}`)}
                value={dataset[name]}
                onInput={(event) => onChange({ ...dataset, [name]: event.currentTarget.value })}
              />
            </div>
          ))}
        </div>
      </details>
    </li>
  );
}

function Uploads({ onPick }: { onPick(name: string): void }) {
  const id = useId();
  const said = useSignal('');
  const failure = useSignal<Error | null>(null);
  const uploads = useLoad('uploads', () => ok(api.GET('/datasets', { params: { query: { limit: 100 } } })));
  const send = async (file: File) => {
    failure.value = null;
    said.value = `Uploading ${file.name}, ${bytes(file.size)}…`;
    try {
      const upload = await put(file);
      said.value = `${upload.name} is uploaded and added.`;
      onPick(upload.name);
      uploads.reload();
    } catch (cause) {
      said.value = '';
      failure.value = cause as Error;
    }
  };
  return (
    <div class="field">
      <label for={id}>Or upload a file (.txt, .jsonl, .parquet, also .gz or .zst)</label>
      <div class="row">
        <input
          id={id}
          type="file"
          onChange={(event) => {
            const file = event.currentTarget.files?.[0];
            if (file) void send(file);
          }}
        />
        {uploads.data && uploads.data.items.length > 0 && (
          <select
            aria-label="Add an earlier upload"
            value=""
            onChange={(event) => {
              onPick(event.currentTarget.value);
              event.currentTarget.value = '';
            }}
          >
            <option value="">Add an earlier upload…</option>
            {uploads.data.items.map((each) => (
              <option key={each.name} value={each.name}>
                {each.name}, {bytes(each.bytes)}
              </option>
            ))}
          </select>
        )}
      </div>
      <p role="status" class="faint">
        {said.value}
      </p>
      <Trouble error={failure.value ?? uploads.error} what="The upload" />
    </div>
  );
}

/** A file is sent as it is, whatever its size: the browser reads it while it sends. */
async function put(file: File): Promise<Upload> {
  const name = file.name.replace(/[^A-Za-z0-9._-]+/g, '-').replace(/^[^A-Za-z0-9]+/, '');
  const response = await request(
    new Request(`${ROOT}/datasets/${encodeURIComponent(name)}`, {
      method: 'PUT',
      body: file,
      headers: { 'Content-Type': 'application/octet-stream' },
    }),
  );
  const body: unknown = await response.json().catch(() => null);
  if (!response.ok) throw problemOf(body, response.status);
  return body as Upload;
}
