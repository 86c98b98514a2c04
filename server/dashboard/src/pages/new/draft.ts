// What is typed into the form, and the request that it comes to.
import type { Convention, DatasetFormat, DatasetOptions, DatasetRef, JobRequest } from '../../api/types';

/** A dataset as typed: every field a text, empty where it is left out. */
export interface DraftDataset {
  source: 'path' | 'upload';
  value: string;
  name: string;
  format: string;
  field: string;
  group_by: string;
  limit_documents: string;
}

export interface Draft {
  name: string;
  model: string;
  adapter: string;
  datasets: DraftDataset[];
  convention: Convention;
  window: string;
  stride: string;
  tail: string;
  join: string;
  bos: string;
  tags: string;
  dtype: string;
  numerics: string;
  priority: string;
  audit: string;
  baseline: string;
  reuse: boolean;
  token_output: boolean;
  gate_baseline: string;
  gate_increase: string;
}

export const EMPTY: Draft = {
  name: '',
  model: '',
  adapter: '',
  datasets: [],
  convention: 'rolling',
  window: '',
  stride: '',
  tail: '',
  join: '',
  bos: '',
  tags: '',
  dtype: '',
  numerics: '',
  priority: '',
  audit: '',
  baseline: '',
  reuse: true,
  token_output: false,
  gate_baseline: '',
  gate_increase: '',
};

export function datasetOf(source: DraftDataset['source'], value: string): DraftDataset {
  return { source, value, name: '', format: '', field: '', group_by: '', limit_documents: '' };
}

/** The conventions, each with the fields it has. */
export const CONVENTIONS: { name: Convention; label: string; text: string; fields: (keyof Draft)[] }[] = [
  {
    name: 'rolling',
    label: 'Rolling',
    text: 'Each document alone, with one prefix token, every token scored once. The usual choice: it has word and byte measures and agrees with the rolling log-likelihood of lm-evaluation-harness.',
    fields: ['window'],
  },
  {
    name: 'strided',
    label: 'Strided',
    text: 'All documents joined; windows begin every so many tokens, and each token counts once with the longest context at hand. Smaller strides cost more and give each token more context.',
    fields: ['window', 'stride', 'join', 'bos'],
  },
  {
    name: 'blocks',
    label: 'Blocks',
    text: 'All documents joined and cut into blocks that do not overlap; the first token of each is not scored. The cheapest, and common in papers.',
    fields: ['window', 'tail', 'join', 'bos'],
  },
  {
    name: 'llamacpp',
    label: 'llama.cpp',
    text: 'All documents joined and cut into blocks, of which the second half is scored. For numbers beside those of llama-perplexity.',
    fields: ['window', 'join', 'bos'],
  },
];

export const FORMATS: DatasetFormat[] = ['text', 'jsonl', 'parquet', 'chat', 'pairs'];

/** A number as typed; what is none goes as it is, so that the service says what is wrong with it. */
function number(text: string): number {
  const value = Number(text);
  return Number.isFinite(value) ? value : (text as unknown as number);
}

function reference(d: DraftDataset): DatasetRef {
  const options: DatasetOptions = d.source === 'upload' ? { upload: d.value } : { path: d.value };
  if (d.name) options.name = d.name;
  if (d.format) options.format = d.format as DatasetFormat;
  if (d.field) options.field = d.field;
  if (d.group_by) options.group_by = d.group_by;
  if (d.limit_documents) options.limit_documents = number(d.limit_documents);
  return d.source === 'path' && Object.keys(options).length === 1 ? d.value : options;
}

/** `key:value` parted by commas or line ends. */
function labels(text: string): Record<string, string> {
  const pairs = text
    .split(/[,\n]/)
    .map((part) => part.trim())
    .filter(Boolean);
  return Object.fromEntries(
    pairs.map((pair) => [pair.split(':', 1)[0] ?? '', pair.slice(pair.indexOf(':') + 1)]),
  );
}

/** The body of `POST /jobs`. What has its default is left out. */
export function requestOf(d: Draft): JobRequest {
  const fields = CONVENTIONS.find((each) => each.name === d.convention)?.fields ?? [];
  const given = (name: 'window' | 'stride' | 'tail' | 'join' | 'bos') =>
    fields.includes(name) ? d[name] : '';
  const body: Record<string, unknown> = {};
  if (d.name) body.name = d.name;
  body.model = d.adapter ? { path: d.model, adapter: d.adapter } : d.model;
  body.datasets = d.datasets.map(reference);
  const method: Record<string, unknown> = { convention: d.convention };
  if (given('window')) method.window = number(d.window);
  if (given('stride')) method.stride = number(d.stride);
  if (given('tail')) method.tail = d.tail;
  if (given('join')) method.join = d.join.replaceAll('\\n', '\n');
  if (given('bos')) method.bos = d.bos;
  body.method = method;
  for (const name of ['dtype', 'numerics', 'baseline'] as const) if (d[name]) body[name] = d[name];
  for (const name of ['priority', 'audit'] as const) if (d[name]) body[name] = number(d[name]);
  if (!d.reuse) body.reuse = false;
  if (d.token_output) body.token_output = true;
  if (d.tags.trim()) body.tags = labels(d.tags);
  if (d.gate_baseline) {
    const isTag = d.gate_baseline.includes(':');
    body.gate = {
      baseline: isTag ? { tag: d.gate_baseline } : d.gate_baseline,
      max_increase: number(d.gate_increase || '0.01'),
    };
  }
  return body as unknown as JobRequest;
}

/** A key of its own for each body: sent twice, it makes one job. Not `randomUUID`, which plain HTTP lacks. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** The same request for a shell. */
export function curl(address: string, body: JobRequest, idempotency: string, hasKey: boolean): string {
  const json = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return [
    `curl -s ${address}/jobs`,
    ...(hasKey ? [`-H "Authorization: Bearer $ASSAY_API_KEY"`] : []),
    `-H 'Content-Type: application/json'`,
    `-H 'Idempotency-Key: ${idempotency}'`,
    `-d '${json}'`,
  ].join(' \\\n  ');
}
