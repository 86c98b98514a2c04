// A labelled field of the form with what the service says is wrong with it.

import type { Signal } from '@preact/signals';
import { useComputed } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import type { FieldError } from '../../api/types';
import type { Draft } from './draft';

export type Errors = FieldError[];

/** The errors of a field, by its path in the body: `method.window`. */
export function of(errors: Errors, path: string): string[] {
  return errors.filter((error) => error.field === path).map((error) => error.detail);
}

type TextName = { [K in keyof Draft]: Draft[K] extends string ? K : never }[keyof Draft];

interface Props {
  draft: Signal<Draft>;
  name: TextName;
  /** Path in the body. */
  path: string;
  label: string;
  errors: Errors;
  hint?: string;
  placeholder?: string;
  numeric?: boolean;
  /** A choice among these, `value: label`. */
  choices?: Record<string, string>;
  children?: ComponentChildren;
}

export function Field({
  draft,
  name,
  path,
  label,
  errors,
  hint,
  placeholder,
  numeric,
  choices,
  children,
}: Props) {
  const id = useId();
  const value = useComputed(() => draft.value[name] as string);
  const wrong = of(errors, path);
  const described =
    [hint && `${id}-hint`, wrong.length > 0 && `${id}-wrong`].filter(Boolean).join(' ') || undefined;
  const set = (text: string) => {
    draft.value = { ...draft.value, [name]: text };
  };
  const common = { id, 'aria-describedby': described, 'aria-invalid': wrong.length > 0 };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <div class="row">
        {choices ? (
          <select {...common} value={value} onChange={(event) => set(event.currentTarget.value)}>
            {Object.entries(choices).map(([key, text]) => (
              <option key={key} value={key}>
                {text}
              </option>
            ))}
          </select>
        ) : (
          <input
            {...common}
            type="text"
            inputMode={numeric ? 'decimal' : undefined}
            autocomplete="off"
            spellcheck={false}
            placeholder={placeholder}
            value={value}
            onInput={(event) => set(event.currentTarget.value)}
          />
        )}
        {children}
      </div>
      {hint && (
        <p id={`${id}-hint`} class="faint">
          {hint}
        </p>
      )}
      <Wrong id={`${id}-wrong`} messages={wrong} />
    </div>
  );
}

export function Wrong({ id, messages }: { id?: string; messages: string[] }) {
  if (messages.length === 0) return null;
  return (
    <p id={id} class="wrong">
      <span aria-hidden="true">▲</span> {messages.join(' ')}
    </p>
  );
}
