// Posts a job.
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { ApiError, api, ok, ROOT } from '../../api/client';
import { key } from '../../api/key';
import { go, href } from '../../router';
import { Copy, Trouble } from '../../ui/parts';
import { Browse } from './browse';
import { Datasets } from './datasets';
import { curl, type Draft, EMPTY, newKey, requestOf } from './draft';
import { type Errors, Field } from './field';
import { Method } from './method';
import { More } from './more';

export function NewJob() {
  const draft = useSignal<Draft>(EMPTY);
  const failure = useSignal<Error | null>(null);
  const sending = useSignal(false);
  const body = requestOf(draft.value);
  const json = JSON.stringify(body);
  // Another body is another job.
  const idempotency = useMemo(newKey, [json]);
  const errors: Errors = failure.value instanceof ApiError ? failure.value.fields : [];

  const post = async (event: Event) => {
    event.preventDefault();
    if (sending.value) return;
    sending.value = true;
    try {
      const job = await ok(
        api.POST('/jobs', { body, params: { header: { 'Idempotency-Key': idempotency } } }),
      );
      go(href(['jobs', job.id]));
    } catch (cause) {
      failure.value = cause as Error;
    } finally {
      sending.value = false;
    }
  };

  const set = (change: Partial<Draft>) => {
    draft.value = { ...draft.value, ...change };
  };
  return (
    <form class="new" onSubmit={post} noValidate>
      <h1>New job</h1>
      <div class="columns">
        <div>
          <fieldset>
            <legend>Model</legend>
            <Field
              draft={draft}
              name="model"
              path="model"
              label="Checkpoint below the model root"
              errors={errors}
            >
              <Browse
                root="models"
                label="Browse models…"
                title="Choose a checkpoint"
                kinds={['checkpoint']}
                onPick={(model) => set({ model })}
              />
            </Field>
            <Field
              draft={draft}
              name="adapter"
              path="model.adapter"
              label="LoRA adapter, if there is one"
              errors={errors}
            >
              <Browse
                root="models"
                label="Browse adapters…"
                title="Choose an adapter"
                kinds={['adapter']}
                onPick={(adapter) => set({ adapter })}
              />
            </Field>
          </fieldset>
          <Datasets draft={draft} errors={errors} />
          <Method draft={draft} errors={errors} />
          <fieldset>
            <legend>Label</legend>
            <div class="grid">
              <Field draft={draft} name="name" path="name" label="Name" errors={errors} />
              <Field
                draft={draft}
                name="tags"
                path="tags"
                label="Tags"
                placeholder="branch:main, commit:1f3c9ab"
                errors={errors}
              />
            </div>
          </fieldset>
          <More draft={draft} errors={errors} />
          <Trouble error={failure.value} what="Posting the job" />
          <Elsewhere errors={errors} />
          <button type="submit" class="primary large" disabled={sending}>
            {sending.value ? 'Posting…' : 'Post job'}
          </button>
        </div>
        <aside aria-labelledby="curl">
          <div class="row between">
            <h2 id="curl">The same by curl</h2>
            <Copy text={curl(location.origin + ROOT, body, idempotency, key.value !== null)} />
          </div>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached by keyboard */}
          <section class="code" tabIndex={0} aria-labelledby="curl">
            <pre>{curl(location.origin + ROOT, body, idempotency, key.value !== null)}</pre>
          </section>
        </aside>
      </div>
    </form>
  );
}

const SHOWN =
  /^(model(\.adapter)?|datasets(\[\d+\].*)?|method(\.\w+)?|name|tags|dtype|numerics|priority|audit|baseline|gate(\.\w+)?)$/;

/** Errors of fields that this form does not have. */
function Elsewhere({ errors }: { errors: Errors }) {
  const others = errors.filter((error) => !SHOWN.test(error.field));
  if (others.length === 0) return null;
  return (
    <ul class="wrong">
      {others.map((error) => (
        <li key={error.field}>
          <code>{error.field}</code> {error.detail}
        </li>
      ))}
    </ul>
  );
}
