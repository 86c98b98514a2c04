// What most jobs leave as it is.
import type { Signal } from '@preact/signals';
import type { Draft } from './draft';
import { type Errors, Field, of, Wrong } from './field';

const NAMES = ['dtype', 'numerics', 'priority', 'audit', 'baseline', 'gate'];

export function More({ draft, errors }: { draft: Signal<Draft>; errors: Errors }) {
  const isWrong = errors.some((error) => NAMES.includes(error.field.split('.')[0] ?? ''));
  const check = (name: 'reuse' | 'token_output', label: string) => (
    <label class="check">
      <input
        type="checkbox"
        checked={draft.value[name]}
        onChange={(event) => {
          draft.value = { ...draft.value, [name]: event.currentTarget.checked };
        }}
      />
      <span>{label}</span>
    </label>
  );
  return (
    <details class="more" open={isWrong || undefined}>
      <summary>More: precision, priority, audit, gate</summary>
      <div class="grid">
        <Field
          draft={draft}
          name="dtype"
          path="dtype"
          label="Computed in"
          choices={{ '': 'auto', float32: 'float32', bfloat16: 'bfloat16' }}
          errors={errors}
        />
        <Field
          draft={draft}
          name="numerics"
          path="numerics"
          label="Numerics"
          choices={{ '': 'uniform: one dtype everywhere', adaptive: 'adaptive: slow devices in float32' }}
          errors={errors}
        />
        <Field
          draft={draft}
          name="priority"
          path="priority"
          label="Priority"
          numeric
          placeholder="0"
          hint="−100 to 100, the highest first"
          errors={errors}
        />
        <Field
          draft={draft}
          name="audit"
          path="audit"
          label="Audited share"
          numeric
          placeholder="0"
          hint="0 to 1: computed again by another worker"
          errors={errors}
        />
        <Field
          draft={draft}
          name="baseline"
          path="baseline"
          label="One device alone"
          choices={{ '': 'auto', measure: 'measure', skip: 'skip' }}
          hint="What the speed-up is measured against"
          errors={errors}
        />
        <Field
          draft={draft}
          name="gate_baseline"
          path="gate.baseline"
          label="Gate: held against"
          placeholder="id of a job, or key:value"
          errors={errors}
        />
        <Field
          draft={draft}
          name="gate_increase"
          path="gate.max_increase"
          label="Gate: largest increase, nats per token"
          numeric
          placeholder="0.01"
          errors={errors}
        />
      </div>
      <Wrong messages={of(errors, 'gate')} />
      {check('reuse', 'Take numbers from an earlier job that scored the same')}
      {check('token_output', 'Keep the NLL of every counted token')}
    </details>
  );
}
