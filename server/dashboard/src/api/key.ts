// The API key lives as long as the tab: what is stored for longer is stolen for longer.
import { signal } from '@preact/signals';

const NAME = 'assay-key';

export const key = signal<string | null>(sessionStorage.getItem(NAME));

/** Set when the service has refused a request for want of a key, or of a good one. */
export const refused = signal<string | null>(null);

export function keep(value: string): void {
  sessionStorage.setItem(NAME, value);
  key.value = value;
  refused.value = null;
}

export function forget(): void {
  sessionStorage.removeItem(NAME);
  key.value = null;
}
