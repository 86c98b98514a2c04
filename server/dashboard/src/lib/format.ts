// Numbers and times as people read them. Nothing here computes what the API gives.
import type { DatasetRef, Job, Method, ModelRef } from '../api/types';

const whole = new Intl.NumberFormat('en-US');
const digits = new Map<number, Intl.NumberFormat>();

/** `—` stands for what is not known, everywhere. */
export const NONE = '—';

export function integer(value: number | null | undefined): string {
  return value == null ? NONE : whole.format(value);
}

/** A number of things by their name, whose plural has an s. */
export function things(count: number, name: string): string {
  return `${integer(count)} ${name}${count === 1 ? '' : 's'}`;
}

/** With so many digits behind the point. */
export function fixed(value: number | null | undefined, places: number): string {
  if (value == null) return NONE;
  // Nobody counts so many digits.
  if (Math.abs(value) >= 1e9) return value.toExponential(places);
  let format = digits.get(places);
  if (format === undefined) {
    format = new Intl.NumberFormat('en-US', { minimumFractionDigits: places, maximumFractionDigits: places });
    digits.set(places, format);
  }
  return format.format(value);
}

/** As `fixed`, with a sign: a difference. */
export function signed(value: number | null | undefined, places: number): string {
  if (value == null) return NONE;
  return `${value > 0 ? '+' : value < 0 ? '−' : '±'}${fixed(Math.abs(value), places)}`;
}

export function rate(value: number | null | undefined): string {
  return value == null ? NONE : value >= 100 ? integer(Math.round(value)) : fixed(value, 1);
}

export function percent(part: number, all: number | null | undefined): string {
  return all ? `${fixed((100 * part) / all, 0)} %` : NONE;
}

export function bytes(value: number | null | undefined): string {
  if (value == null) return NONE;
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let scaled = value;
  let unit = 0;
  while (scaled >= 1000 && unit < units.length - 1) {
    scaled /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? integer(scaled) : fixed(scaled, 1)} ${units[unit]}`;
}

/** A span of time in its two largest units. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return NONE;
  if (seconds < 10) return `${fixed(seconds, 1)} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

export function ago(time: string, now: number): string {
  const seconds = Math.max(0, (now - Date.parse(time)) / 1000);
  if (seconds < 60) return 'now';
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** A time in the reader's own zone, to the second. */
export function clock(time: string | null | undefined): string {
  if (!time) return NONE;
  return new Date(time).toLocaleString('sv-SE');
}

export function method(value: Method): string {
  const parts = [`window ${integer(value.window)}`];
  if (value.stride != null) parts.push(`stride ${integer(value.stride)}`);
  if (value.tail === 'score') parts.push('tail scored');
  return `${value.convention}, ${parts.join(', ')}`;
}

export function methods(value: Job['method']): Method[] {
  return Array.isArray(value) ? value : [value];
}

export function model(value: ModelRef): string {
  if (typeof value === 'string') return value;
  return value.adapter ? `${value.path} + ${value.adapter}` : value.path;
}

export function dataset(value: DatasetRef): string {
  if (typeof value === 'string') return value;
  return value.name ?? value.path ?? value.upload ?? 'documents';
}

export function title(job: Job): string {
  return job.name ?? job.id.slice(0, 13);
}

/** `key:value`, sorted by key. */
export function tags(job: Job): string[] {
  return Object.entries(job.tags)
    .map(([key, value]) => `${key}:${value}`)
    .sort();
}

/** A digest as far as people compare it. */
export function digest(value: string | null | undefined): string {
  return value ? `${value.replace('sha256:', '').slice(0, 12)}…` : NONE;
}
