// How text becomes numbers: the conventions, explained, with the fields that each has.
import type { Signal } from '@preact/signals';
import { CONVENTIONS, type Draft } from './draft';
import { type Errors, Field, of, Wrong } from './field';

export function Method({ draft, errors }: { draft: Signal<Draft>; errors: Errors }) {
  const chosen = draft.value.convention;
  const fields = CONVENTIONS.find((each) => each.name === chosen)?.fields ?? [];
  return (
    <fieldset>
      <legend>Method</legend>
      <div class="methods">
        {CONVENTIONS.map((each) => (
          <label key={each.name} class="method">
            <input
              type="radio"
              name="convention"
              checked={chosen === each.name}
              onChange={() => {
                draft.value = { ...draft.value, convention: each.name };
              }}
            />
            <span>
              <b>{each.label}</b> <span class="faint">{each.text}</span>
            </span>
          </label>
        ))}
      </div>
      <Wrong messages={[...of(errors, 'method'), ...of(errors, 'method.convention')]} />
      <div class="grid">
        <Field
          draft={draft}
          name="window"
          path="method.window"
          label="Window, tokens"
          numeric
          placeholder={chosen === 'llamacpp' ? '512' : '2048 or what the model has'}
          errors={errors}
        />
        {fields.includes('stride') && (
          <Field
            draft={draft}
            name="stride"
            path="method.stride"
            label="Stride, tokens"
            numeric
            placeholder="512 or half a window"
            errors={errors}
          />
        )}
        {fields.includes('tail') && (
          <Field
            draft={draft}
            name="tail"
            path="method.tail"
            label="Shorter block at the end"
            choices={{ '': 'drop (default)', score: 'score' }}
            errors={errors}
          />
        )}
        {fields.includes('join') && (
          <Field
            draft={draft}
            name="join"
            path="method.join"
            label="Text between documents"
            placeholder="\n\n"
            hint="\n is a line feed"
            errors={errors}
          />
        )}
        {fields.includes('bos') && (
          <Field
            draft={draft}
            name="bos"
            path="method.bos"
            label="BOS in front"
            choices={{ '': 'as the tokenizer has it', always: 'always', never: 'never' }}
            errors={errors}
          />
        )}
      </div>
    </fieldset>
  );
}
