// Chooses a succeeded job by searching.
import { useSignal } from '@preact/signals';
import { useId } from 'preact/hooks';
import { api, ok } from '../../api/client';
import { clock, dataset, model, title } from '../../lib/format';
import { useLoad, useSettled } from '../../lib/load';
import { href } from '../../router';
import { Empty, Trouble } from '../../ui/parts';

interface Props {
  label: string;
  hint: string;
  id: string;
  onPick(id: string): void;
}

export function JobPicker({ label, hint, id, onPick }: Props) {
  const text = useSignal('');
  const q = useSettled(text.value);
  const field = useId();
  const chosen = useLoad(id || null, () => ok(api.GET('/jobs/{id}', { params: { path: { id } } })));
  const found = useLoad(id ? null : `search ${q}`, () =>
    ok(api.GET('/jobs', { params: { query: { state: ['succeeded'], q: q || undefined, limit: 8 } } })),
  );
  return (
    <fieldset class="picker">
      <legend>
        {label} <span class="faint">{hint}</span>
      </legend>
      {id ? (
        <div class="row between">
          <p>
            <a href={href(['jobs', id])}>{chosen.data ? title(chosen.data) : id}</a>
            {chosen.data && (
              <span class="faint">
                {' '}
                {model(chosen.data.model)} · {clock(chosen.data.created_at)}
              </span>
            )}
          </p>
          <button type="button" class="small" onClick={() => onPick('')}>
            Change
          </button>
        </div>
      ) : (
        <>
          <label for={field} class="hidden">
            Search for the {label.toLowerCase()}
          </label>
          <input
            id={field}
            type="search"
            placeholder="Search name, model, tag or id"
            value={text}
            onInput={(event) => {
              text.value = event.currentTarget.value;
            }}
          />
          <ul class="choices" aria-label={`Jobs for the ${label.toLowerCase()}`}>
            {found.data?.items.map((job) => (
              <li key={job.id}>
                <button type="button" onClick={() => onPick(job.id)}>
                  <b>{title(job)}</b>
                  <span class="faint">
                    {model(job.model)} · {job.datasets.map(dataset).join(', ')} · {clock(job.created_at)}
                  </span>
                </button>
              </li>
            ))}
          </ul>
          {found.data?.items.length === 0 && <Empty>No succeeded job is like this.</Empty>}
        </>
      )}
      <Trouble error={chosen.error ?? found.error} what="Finding the job" />
    </fieldset>
  );
}
